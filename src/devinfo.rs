//! `roxe devinfo`: the adapters there are, as ibv_devinfo shows them.

use std::io::{self, Write};

use anyhow::Result;
use roxe_net::neighbor::Netlink;
use roxe_verbs::{
    Context, DeviceEntry, Error, Gid, GidType, Interface, Limits, Mtu, PortAttr, PortState,
};

use crate::adapters::why_not_open;
use crate::cli::DevinfoArguments;
use crate::explain::ink::Ink;
use crate::explain::json::Object;
use crate::outcome::{Outcome, Verdicts, complain};

/// The command.
pub(crate) fn run(arguments: &DevinfoArguments) -> Result<Outcome> {
    let mut out = Verdicts::to(io::stdout().lock());
    if let Some(name) = &arguments.device {
        return Ok(match arguments.config.find(name).and_then(|entry| open_to_look(&entry)) {
            Ok(context) => {
                out.write_all(told(&context, arguments).bytes())?;
                Outcome::Right
            }
            Err(error) => {
                let outcome = failed(&error);
                if matches!(error, Error::NoSuchDevice { .. }) {
                    tell_down();
                }
                outcome
            }
        });
    }
    let devices = match arguments.config.devices() {
        Ok(devices) => devices,
        Err(error) => return Ok(failed(&error)),
    };
    if devices.is_empty() {
        complain(
            "no interface is up and has an address: `ip address`, or name devices in \
                  ROXE_DEVICES",
        );
    }
    if devices.iter().all(|entry| entry.interface.is_some()) {
        tell_down();
    }
    let mut outcome = Outcome::Lacking;
    for entry in &devices {
        let ink = match &entry.interface {
            Some(interface) => {
                outcome = Outcome::Right;
                left_alone(entry, interface, arguments)
            }
            None => match open_to_look(entry) {
                Ok(context) => {
                    outcome = Outcome::Right;
                    told(&context, arguments)
                }
                Err(error) => not_open(entry, &error, arguments.json),
            },
        };
        out.write_all(ink.bytes())?;
    }
    Ok(outcome)
}

/// Where each interface is an adapter, those that are down are none.
fn tell_down() {
    let interfaces = Netlink::open().and_then(|mut netlink| netlink.interfaces());
    let down = interfaces.unwrap_or_default().into_iter().filter(|interface| !interface.is_up);
    let down: Vec<_> = down.map(|interface| interface.name).collect();
    if !down.is_empty() {
        complain(format_args!(
            "down, and no adapter: {}; `ip link set NETDEV up`",
            down.join(", ")
        ));
    }
}

/// Opens an adapter without beginning the recording that it may ask for, which would take the place
/// of an older one.
fn open_to_look(entry: &DeviceEntry) -> Result<Context, Error> {
    let mut entry = entry.clone();
    entry.device.capture = None;
    entry.open()
}

pub(crate) fn failed(error: &Error) -> Outcome {
    complain(why_not_open(error));
    match error {
        Error::DeviceString(_) | Error::Config(_) => Outcome::Unreadable,
        _ => Outcome::Lacking,
    }
}

/// An adapter that cannot be opened, and why.
fn not_open(entry: &DeviceEntry, error: &Error, json: bool) -> Ink {
    let error = why_not_open(error);
    let mut ink = Ink::new(false);
    if json {
        let mut object = Object::begin(&mut ink);
        object.text("hca_id", &entry.name);
        object.text("device", &entry.device.to_string());
        object.text("error", &error);
        object.end();
    } else {
        ink.display(format_args!("hca_id:\t{}\n", entry.name));
        ink.display(format_args!("\tdevice:\t\t\t{}\n", entry.device));
        ink.display(format_args!("\tcannot be opened:\t{error}\n\n"));
    }
    ink
}

/// An interface that nobody named, as it would be opened.
fn left_alone(entry: &DeviceEntry, interface: &Interface, arguments: &DevinfoArguments) -> Ink {
    let mut ink = Ink::new(false);
    let mtu = Mtu::fitting(interface.mtu);
    let gids: Vec<_> =
        interface.addresses.iter().map(|it| Gid::from_ip(it.address).to_string()).collect();
    let (now, code) =
        state(if interface.has_carrier { PortState::Active } else { PortState::Down });
    if arguments.json {
        let mut object = Object::begin(&mut ink);
        object.text("hca_id", &entry.name);
        object.text("device", &entry.device.to_string());
        object.number("port", 1);
        object.text("netdev", &interface.name);
        object.text("state", now);
        object.number("state_code", code.into());
        object.text("link_layer", "Ethernet");
        if let Some(mtu) = mtu {
            object.number("active_mtu", mtu.bytes().into());
        }
        object.texts("gids", &gids);
        object.end();
        return ink;
    }
    ink.display(format_args!("hca_id:\t{}\n", entry.name));
    ink.display(format_args!("\tdevice:\t\t\t{} (see more by -d {0})\n", entry.device));
    ink.display(format_args!("\t\tstate:\t\t\t{now} ({code})\n"));
    match mtu {
        Some(mtu) => ink.display(format_args!("\t\tactive_mtu:\t\t{mtu} ({})\n", mtu.code())),
        None => ink.display(format_args!("\t\tMTU {} is too small\n", interface.mtu)),
    }
    for (index, gid) in gids.iter().enumerate() {
        ink.display(format_args!("\t\tGID[{index:3}]:\t\t{gid}, {}\n", GidType::RoceV2));
    }
    ink.byte(b'\n');
    if arguments.verbose {
        tell_limits(&Limits::DEFAULT, &mut ink);
    }
    ink
}

fn told(context: &Context, arguments: &DevinfoArguments) -> Ink {
    let mut ink = Ink::new(false);
    let port = context.query_port();
    if arguments.json {
        tell_json(context, &port, &mut ink)
    } else {
        tell(context, &port, &mut ink)
    }
    if arguments.verbose && !arguments.json {
        tell_limits(context.query_device(), &mut ink);
    }
    ink
}

fn tell_limits(of: &Limits, ink: &mut Ink) {
    for (name, value) in limits(of) {
        ink.display(format_args!("\t{:<32}{value}\n", format!("{name}:")));
    }
    ink.byte(b'\n');
}

/// For people.
fn tell(context: &Context, port: &PortAttr, ink: &mut Ink) {
    let (name, code) = state(port.state);
    let mtu = port.active_mtu;
    ink.display(format_args!("hca_id:\t{}\n", context.name()));
    ink.display(format_args!("\ttransport:\t\tRoCE v2, in software\n"));
    ink.display(format_args!("\tport:\t1\n"));
    ink.display(format_args!("\t\tstate:\t\t\t{name} ({code})\n"));
    ink.display(format_args!("\t\tmode:\t\t\t{}\n", port.capabilities));
    ink.display(format_args!("\t\tactive_mtu:\t\t{mtu} ({})\n", mtu.code()));
    ink.display(format_args!("\t\tlink_layer:\t\tEthernet\n"));
    let checked = if port.capabilities.verifies_icrc { "verified" } else { "cannot be verified" };
    ink.display(format_args!("\t\ticrc:\t\t\t{checked}\n"));
    if let Some(trouble) = context.status_trouble() {
        ink.display(format_args!("\t\tstat, top, capture:\tcannot look at it: {trouble}\n"));
    }
    for (index, entry) in context.gids() {
        ink.display(format_args!("\t\tGID[{index:3}]:\t\t{}, {}", entry.gid, entry.gid_type));
        if let Some(vlan) = entry.vlan {
            ink.display(format_args!(", VLAN {vlan}"));
        }
        ink.byte(b'\n');
    }
    ink.byte(b'\n');
}

/// For programs.
fn tell_json(context: &Context, port: &PortAttr, ink: &mut Ink) {
    let mut object = Object::begin(ink);
    object.text("hca_id", context.name());
    object.text("transport", "RoCE v2, in software");
    object.number("port", 1);
    if let Some(interface) = context.interface() {
        object.text("netdev", interface);
    }
    object.text("state", state(port.state).0);
    object.number("state_code", state(port.state).1.into());
    object.text("link_layer", "Ethernet");
    object.text("mode", &port.capabilities.to_string());
    object.number("active_mtu", port.active_mtu.bytes().into());
    object.flag("zero_copy", port.capabilities.zero_copy);
    object.flag("verifies_icrc", port.capabilities.verifies_icrc);
    let entries = context.gids().into_iter().map(|(_, entry)| entry);
    let (gids, types): (Vec<_>, Vec<_>) =
        entries.map(|entry| (entry.gid.to_string(), entry.gid_type.to_string())).unzip();
    object.texts("gids", &gids);
    object.texts("gid_types", &types);
    for (name, value) in limits(context.query_device()) {
        object.number(name, value);
    }
    object.end();
}

/// As ibv_devinfo has it.
const fn state(state: PortState) -> (&'static str, u8) {
    match state {
        PortState::Down => ("PORT_DOWN", 1),
        PortState::Active => ("PORT_ACTIVE", 4),
    }
}

/// Every limit by its name in `ibv_device_attr`, and those of ports and queue pairs.
#[rustfmt::skip]
fn limits(limits: &Limits) -> Vec<(&'static str, u64)> {
    vec![
        ("max_qp",                    limits.max_qp.into()),
        ("max_qp_wr",                 limits.max_qp_wr.into()),
        ("max_sge",                   limits.max_sge.into()),
        ("max_inline_data",           limits.max_inline_data.into()),
        ("max_qp_rd_atom",            limits.max_qp_rd_atom.into()),
        ("max_qp_init_rd_atom",       limits.max_qp_init_rd_atom.into()),
        ("max_res_rd_atom",           limits.max_res_rd_atom().into()),
        ("max_msg_sz",                limits.max_message_len().into()),
        ("max_cq",                    limits.max_cq.into()),
        ("max_cqe",                   limits.max_cqe.into()),
        ("max_srq",                   limits.max_srq.into()),
        ("max_srq_wr",                limits.max_srq_wr.into()),
        ("max_srq_sge",               limits.max_srq_sge.into()),
        ("max_pd",                    limits.max_pd.into()),
        ("max_mr",                    limits.max_mr.into()),
        ("max_fast_register_len",     limits.max_fast_register_len),
        ("max_mw",                    limits.max_mw.into()),
        ("max_ah",                    limits.max_ah.into()),
        ("max_mcast_grp",             limits.max_mcast_grp.into()),
        ("max_mcast_qp_attach",       limits.max_mcast_qp_attach.into()),
        ("max_total_mcast_qp_attach", limits.max_total_mcast_qp_attach().into()),
        ("gid_tbl_len",               limits.gid_table_len.into()),
        ("max_pkeys",                 limits.max_pkeys.into()),
        ("local_ca_ack_delay",        limits.local_ca_ack_delay.into()),
    ]
}

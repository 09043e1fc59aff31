//! Management datagrams of Linux: each parses, comes back byte for byte, and is explained.
//!
//! `mads/NAME.hex` is a datagram, with a line that says where it comes from. `mads/NAME.txt` is
//! what we make of it: the line in words, then a field a line. The values were compared with
//! tshark's.

use core::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use roxe_wire::mad::cm::{AnsweredMessage, CommId, RejectReason, SidrStatus};
use roxe_wire::mad::{Mad, Message};
use roxe_wire::{Mtu, PKey, QKey, Qpn};

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mads")
}

fn read(name: &str) -> Vec<u8> {
    let text = fs::read_to_string(directory().join(name).with_extension("hex")).unwrap();
    let digits: String = text.lines().filter(|line| !line.starts_with('#')).collect();
    (0..digits.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap())
        .collect()
}

fn parse(name: &str) -> Mad {
    Mad::parse(&read(name)).unwrap_or_else(|reason| panic!("{name}: {reason}"))
}

fn explain(mad: &Mad) -> String {
    let mut text = format!("{mad}\n");
    mad.for_each_field(&mut |name, value| writeln!(text, "{name} {value}").unwrap());
    text
}

/// Set `ROXE_UPDATE=1` to write the explanations anew, then read the difference.
#[test]
fn every_datagram_comes_back_and_is_explained() {
    let mut seen = Vec::new();
    for entry in fs::read_dir(directory()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|kind| kind != "hex") {
            continue;
        }
        let name = path.file_stem().unwrap().to_str().unwrap();
        let mad = parse(name);
        let mut room = [0xee; Mad::LEN];
        mad.emit(&mut room);
        assert_eq!(room.as_slice(), read(name), "{name}");
        let (explanation, file) = (explain(&mad), path.with_extension("txt"));
        if std::env::var_os("ROXE_UPDATE").is_some() {
            fs::write(&file, &explanation).unwrap();
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), explanation, "{name}");
        seen.push(mad.message.name());
    }
    for kind in ["REQ", "REP", "RTU", "REJ", "DREQ", "DREP", "SIDR_REQ", "SIDR_REP"] {
        assert!(seen.contains(&kind), "no {kind}");
    }
}

#[test]
fn truncations_are_refused() {
    let bytes = read("req_rping");
    assert!((0..bytes.len()).all(|len| Mad::parse(&bytes[..len]).is_err()));
}

/// The synthetic REQ, field by field, from its description.
#[test]
fn synthetic_request() {
    let mad = parse("cm_req_v4");
    assert_eq!(mad.transaction_id, 0x0000_0001_a1b2_c3d4);
    let Message::Request(req) = mad.message else { panic!("{mad}") };
    assert_eq!(req.local_comm_id, CommId(0xa1b2_c3d4));
    assert_eq!(req.service_id.0, 0x0000_0000_0106_115c);
    assert_eq!(req.local_ca_guid, 0x0200_00ff_fe00_000a);
    assert_eq!((req.local_qpn, req.starting_psn.get()), (Qpn::new(0x22), 0x100));
    assert_eq!((req.responder_resources, req.initiator_depth), (4, 4));
    assert_eq!((req.retry_count.get(), req.rnr_retry_count.get()), (7, 7));
    assert_eq!((req.max_cm_retries.get(), req.path_mtu()), (15, Some(Mtu::B1024)));
    assert_eq!(req.remote_cm_response_timeout.code(), 20);
    assert_eq!(req.local_cm_response_timeout.code(), 20);
    assert_eq!(req.partition_key, PKey::DEFAULT);
    let path = req.primary_path;
    assert_eq!((path.local_lid, path.remote_lid), (0xffff, 0xffff));
    assert_eq!(path.local_gid.to_ip().to_string(), "192.0.2.10");
    assert_eq!(path.remote_gid.to_ip().to_string(), "192.0.2.11");
    assert_eq!((path.flow_label.get(), path.packet_rate.code()), (0x12345, 3));
    assert_eq!((path.traffic_class, path.hop_limit), (0x68, 64));
    assert_eq!(path.local_ack_timeout.code(), 19);
    assert!(!path.subnet_local && !req.srq && !req.end_to_end_flow_control);
    let (header, rest) = req.ip_cm().unwrap();
    assert_eq!(header.source_port, 0x9c40);
    assert_eq!(header.addresses.source().to_string(), "192.0.2.10");
    assert_eq!(header.addresses.destination().to_string(), "192.0.2.11");
    assert!(rest.starts_with(b"hello\0"));
    assert_eq!(
        mad.to_string(),
        "CM REQ: connect to TCP port 4444 from 192.0.2.10:40000, QP 0x22, starting PSN 256, \
         comm id 0xa1b2c3d4"
    );
}

#[test]
fn synthetic_ready_to_use() {
    let mad = parse("cm_rtu_v4");
    assert_eq!(mad.transaction_id, 0x0000_0001_a1b2_c3d4);
    let Message::ReadyToUse(rtu) = mad.message else { panic!("{mad}") };
    assert_eq!((rtu.local_comm_id, rtu.remote_comm_id), (CommId(0xa1b2_c3d4), CommId(0x0bad_cafe)));
    assert!(rtu.private_data.as_bytes().iter().all(|byte| *byte == 0));
}

/// A port where nobody listens: Linux knows no name of its own for the connection yet.
#[test]
fn linux_refuses_an_unknown_service() {
    let Message::Reject(rej) = parse("rej_nobody_listens").message else { panic!() };
    assert_eq!((rej.local_comm_id, rej.remote_comm_id), (CommId(0), CommId(0x178a_4423)));
    assert_eq!(rej.message_rejected, AnsweredMessage::Req);
    assert_eq!(rej.reason, RejectReason::InvalidServiceId);
    assert!(rej.ari.as_bytes().is_empty());
}

#[test]
fn linux_resolves_a_datagram_service() {
    let Message::SidrReply(rep) = parse("sidr_rep_udaddy").message else { panic!() };
    assert_eq!((rep.status, rep.qpn), (SidrStatus::Valid, Qpn::new(0x72)));
    assert_eq!((rep.q_key, rep.service_id.0), (QKey::RDMA_CM, 0x0000_0000_0111_1c06));
}

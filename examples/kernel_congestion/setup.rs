//! What of a lab of the simulator is done over the kernel.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use roxe::verbs::Mtu;
use roxe::verbs::congestion::{Burst, CongestionControl, Dcqcn, Rate};

/// Two senders, as the lab's words say.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// Every cable.
    pub(crate) gbps: f64,
    /// The queue's thresholds, in bytes.
    pub(crate) k_min: u32,
    pub(crate) k_max: u32,
    pub(crate) p_max: f64,
    /// What the port's queue holds.
    pub(crate) limit: u32,
    /// Each sender sends so much.
    pub(crate) bytes: usize,
    /// The second begins so much later.
    pub(crate) stagger: Duration,
    /// How often it is looked at.
    pub(crate) sample: Duration,
    /// How senders react.
    pub(crate) dcqcn: Dcqcn,
    /// What a sender may send at once that has waited.
    pub(crate) burst: Burst,
    /// Bytes of a message, how many are outstanding, and the most payload of a packet.
    pub(crate) message: usize,
    pub(crate) outstanding: usize,
    pub(crate) path_mtu: Mtu,
    /// The queue by whose length packets are marked empties at this share of the cables' rate.
    pub(crate) share: f64,
    /// The names of the runs.
    pub(crate) runs: Vec<String>,
}

impl Setup {
    /// Of a lab's file.
    ///
    /// # Errors
    /// It cannot be read, or lacks a word.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let lab: toml::Table = toml::from_str(&text).context("the lab is no TOML")?;
        let words = lab.get("setup").and_then(|it| it.as_table()).context("no [setup]")?;
        let number = |name: &str| {
            let value = words.get(name);
            let number =
                value.and_then(|it| it.as_float().or_else(|| Some(it.as_integer()? as f64)));
            number.with_context(|| format!("{name} is no number"))
        };
        let kilobytes = |name: &str| number(name).map(|it| (it * 1000.0) as u32);
        let micros = |name: &str| number(name).map(|it| Duration::from_secs_f64(it / 1e6));
        let runs = lab.get("run").and_then(|it| it.as_array()).context("no [[run]]")?;
        let rp_max_rate = Rate::from_bits_per_second(number("gbps")? * 1e9);
        let mut control = CongestionControl::Dcqcn(Dcqcn { rp_max_rate, ..Dcqcn::MLX5 });
        let parameters = words.get("parameters").and_then(|it| it.as_table());
        for (name, value) in parameters.context("no parameters")? {
            let number = value.as_integer().context("a parameter is no whole number")?;
            control.set(name, &number.to_string())?;
        }
        let CongestionControl::Dcqcn(dcqcn) = control else { bail!("not of DCQCN") };
        let names = runs.iter().map(|run| Some(run.get("name")?.as_str()?.to_owned()));
        Ok(Self {
            gbps: number("gbps")?,
            k_min: kilobytes("kmin_kb")?,
            k_max: kilobytes("kmax_kb")?,
            p_max: number("pmax")?,
            limit: kilobytes("buffer_kb")?,
            bytes: number("bytes")? as usize,
            stagger: micros("stagger_us")?,
            sample: micros("sample_us")?,
            dcqcn,
            burst: Burst(4 << 10),
            message: 64 << 10,
            outstanding: 8,
            path_mtu: Mtu::B1024,
            share: 1.0,
            runs: names.collect::<Option<_>>().context("a run without a name")?,
        })
    }

    /// The same for a small recording, in which the senders' pace can be seen at the receiver:
    /// marks come before there is a queue that would hide it.
    pub(crate) fn recorded(&self) -> Self {
        let gbps = self.gbps / 10.0;
        let rp_max_rate = Rate::from_bits_per_second(gbps * 1e9);
        Self {
            gbps,
            dcqcn: Dcqcn { rp_max_rate, ..self.dcqcn },
            burst: Burst(0),
            bytes: 24 << 10,
            message: 2 << 10,
            outstanding: 1,
            path_mtu: Mtu::B256,
            share: 0.5,
            k_min: 2000,
            k_max: 8000,
            stagger: Duration::from_millis(5),
            ..self.clone()
        }
    }

    /// The rate of a cable, in bits a second.
    pub(crate) fn rate(&self) -> u64 {
        (self.gbps * 1e9) as u64
    }
}

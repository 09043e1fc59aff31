//! Whether what a device did is what a script says.

use roxe_transport::qp_state::ServiceType;

use super::super::bench::{Done, Pending, is_receive};
use super::super::frame_out::{differ, differ_in_len};
use super::super::mistake::Stop;
use super::super::run::{bytes_of_completion, compare_completion};
use super::super::symbols::Numbers;
use super::super::syntax::{Arguments, PacketForm, Place};
use super::objects::Thing;
use super::{Halt, LOOK, Live, difference};

impl Live<'_> {
    pub(super) fn check_frame(
        &mut self,
        name: &str,
        forms: &[PacketForm],
        pending: Pending,
    ) -> Result<(), Halt> {
        let Done::Frame { seen: Ok(seen), .. } = &pending.what else {
            return Err(difference(self.show(&pending.what)));
        };
        let ours = self.our_side(name)?;
        let mut differences = Vec::new();
        for form in forms {
            let form = PacketForm { name: form.name, arguments: self.here(&form.arguments) };
            let numbers = Numbers { symbols: self, arguments: &form.arguments, qp: name };
            match seen.compare(&form, &ours, &numbers) {
                Ok(()) => {
                    let port = seen.source_port();
                    return self.check_source_port(name, port);
                }
                Err(Stop::Difference { what, .. }) => differences.push(what),
                Err(mistake) => return Err(mistake.into()),
            }
        }
        let differences = differences.join("; ");
        Err(difference(format!("instead: {}\n  {differences}", self.show(&pending.what))))
    }

    fn check_source_port(&mut self, name: &str, port: u64) -> Result<(), Halt> {
        if !(0xc000..=0xffff).contains(&port) {
            let what = format!("the UDP source port 0x{port:x} is not from 0xc000 to 0xffff");
            return Err(difference(what));
        }
        let Some(Thing::Qp(qp)) = self.objects.get_mut(name) else { return Ok(()) };
        let first = *qp.source_port.get_or_insert(port);
        if first != port && qp.service != ServiceType::Ud {
            let what = format!("the UDP source port is 0x{port:x}, and was 0x{first:x} before");
            return Err(difference(what));
        }
        Ok(())
    }

    pub(super) fn check_completion(&mut self, a: &Arguments, pending: Pending) -> Result<(), Halt> {
        let Done::Completion(completion) = &pending.what else { return Ok(()) };
        let mut compared = compare_completion(self, a, completion);
        if compared.is_ok()
            && let Some((wanted, skip, len)) = bytes_of_completion(a, completion)
        {
            // Bytes of another length are not fetched.
            compared = match differ_in_len(len, wanted.len()) {
                Ok(()) => {
                    let (receive, id) = (is_receive(completion), completion.wr_id);
                    differ(&self.posted_bytes(receive, id, skip, len)?, wanted)
                }
                differ => differ,
            }
            .map_err(Stop::from);
        }
        match compared {
            Err(Stop::Difference { what, .. }) => {
                Err(difference(format!("instead: {}\n  {what}", self.show(&pending.what))))
            }
            other => Ok(other?),
        }
    }

    /// What the device writes may take a moment to be there.
    pub(super) fn check_memory(&mut self, place: &Place, wanted: &[u8]) -> Result<(), Halt> {
        if self.terms.by_hand.is_some() {
            return Ok(());
        }
        let region = self.region(&place.region)?;
        let end = self.site.now() + self.terms.slack;
        loop {
            let there = self.peek(region, place.offset, wanted.len())?;
            match differ(&there, wanted) {
                Ok(()) => return Ok(()),
                Err(what) if self.site.now() > end => return Err(difference(what)),
                Err(_) => self.arrivals(LOOK)?,
            }
        }
    }

    pub(super) fn check_state(&mut self, name: &str, wanted: &str) -> Result<(), Halt> {
        if self.terms.by_hand.is_some() {
            return Ok(());
        }
        let index = self.qp(name)?.index;
        let end = self.site.now() + self.terms.slack;
        loop {
            let answer = self.ask(&format!("query qp={index}"))?;
            let state = answer.text("state")?;
            if state == wanted {
                return Ok(());
            }
            if self.site.now() > end {
                return Err(difference(format!("{name} is in state {state}")));
            }
            self.arrivals(LOOK)?;
        }
    }
}

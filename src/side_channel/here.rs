//! What this side of a measurement knows of itself when nothing comes of the other any more.

use roxe_net::neighbor::Netlink;
use roxe_verbs::{CompletionStatus, Context, Mtu, PortState, QpState, QueuePair};

use crate::side_channel::{Failure, Traffic};

/// This side of a measurement.
pub(crate) trait Here {
    /// What has come by now.
    fn traffic(&self) -> Traffic;

    /// Why nothing may come of the peer any more, if that is to be seen here.
    fn why(&self) -> Option<String>;
}

/// What became of a side: the first queue pair that ended says it, else the port.
pub(crate) fn became(context: &Context, queue_pairs: &[QueuePair]) -> Option<String> {
    let ended = |qp: &&QueuePair| qp.query().state == QpState::Error;
    let why = queue_pairs.iter().find(ended).map(QueuePair::why);
    why.or_else(|| shrunk(context)).or_else(|| {
        is_down(context).then(|| match context.interface() {
            Some(name) => format!("the interface {name} is down"),
            None => "the port is down".to_owned(),
        })
    })
}

/// Why requests fail, and below it what may be behind that; flags are not where nobody answers.
pub(crate) fn hinted(
    context: &Context,
    queue_pairs: &[QueuePair],
    why: &str,
    hint: &str,
) -> Failure {
    let unanswered = |qp: &QueuePair| {
        let status = qp.story().ending.and_then(|ending| ending.cause.status());
        status == Some(CompletionStatus::RetryExceeded)
    };
    if is_down(context) || queue_pairs.iter().any(unanswered) {
        return Failure::failed(match shrunk(context) {
            Some(what) => format!("{what}: {why}"),
            None => why.to_owned(),
        });
    }
    Failure::failed(format_args!("{why}\n{hint}"))
}

/// The interface has a smaller MTU than when the adapter was opened: its packets do not fit.
fn shrunk(context: &Context) -> Option<String> {
    let (name, path_mtu) = (context.interface()?, context.path_mtu());
    let interfaces = Netlink::open().and_then(|mut netlink| netlink.interfaces()).ok()?;
    let mtu = interfaces.iter().find(|it| it.name == name)?.mtu;
    let fits = Mtu::fitting(mtu).is_some_and(|fitting| fitting >= path_mtu);
    (!fits).then(|| format!("{name} has MTU {mtu} by now, which path MTU {path_mtu} does not fit"))
}

fn is_down(context: &Context) -> bool {
    context.query_port().state == PortState::Down
}

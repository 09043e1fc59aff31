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
    why.or_else(|| trouble(context))
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
    // That its port is down a queue pair says by itself, once its adapter knows.
    if is_down(context) {
        return Failure::failed(why);
    }
    if queue_pairs.iter().any(unanswered) {
        return Failure::failed(match trouble(context) {
            Some(trouble) => format!("{trouble}: {why}"),
            None => why.to_owned(),
        });
    }
    Failure::failed(format_args!("{why}\n{hint}"))
}

/// Whether nothing comes or goes by the port.
pub(crate) fn is_down(context: &Context) -> bool {
    context.query_port().state == PortState::Down
}

/// What is wrong with the port: it is down, or has a smaller MTU than when it was opened, so that
/// packets do not fit.
fn trouble(context: &Context) -> Option<String> {
    let Some(name) = context.interface() else {
        return is_down(context).then(|| "the port is down".to_owned());
    };
    // An adapter looks now and then.
    let interfaces = Netlink::open().and_then(|mut netlink| netlink.interfaces()).ok()?;
    let path_mtu = context.path_mtu();
    match interfaces.iter().find(|it| it.name == name) {
        Some(it) if !it.is_up || !it.has_carrier => Some(format!("the interface {name} is down")),
        Some(it) if Mtu::fitting(it.mtu).is_none_or(|fitting| fitting < path_mtu) => Some(format!(
            "the interface {name} has MTU {} by now, and path MTU {path_mtu} does not fit",
            it.mtu
        )),
        Some(_) => None,
        None => Some(format!("the interface {name} is gone")),
    }
}

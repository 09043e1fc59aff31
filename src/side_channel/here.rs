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

/// Why requests fail, and below it what may be behind that on a path of this MTU; `usual` what else
/// may be. Flags are not where a peer that answered answers no more.
pub(crate) fn hinted(
    context: &Context,
    queue_pairs: &[QueuePair],
    path_mtu: Mtu,
    why: &str,
    usual: &str,
) -> Failure {
    // That its port is down a queue pair says by itself, once its adapter knows.
    if is_down(context) {
        return Failure::failed(why);
    }
    let endings = queue_pairs.iter().filter_map(|qp| Some(qp.story().ending?.cause));
    let causes: Vec<_> = endings.filter(|cause| cause.status().is_some()).collect();
    let ended_with = |status| causes.iter().any(|cause| cause.status() == Some(status));
    if ended_with(CompletionStatus::RetryExceeded) {
        return Failure::failed(match trouble(context) {
            Some(trouble) => format!("{trouble}: {why}"),
            None if causes.iter().any(|cause| cause.is_never_answered()) => format!(
                "{why}\nDoes RoCE get through? UDP port 4791 has to be open on the way, and all of \
                 it and the port of the peer have to take a path MTU of {path_mtu} (-m)."
            ),
            None => why.to_owned(),
        });
    }
    if ended_with(CompletionStatus::RemoteInvalidRequest) {
        return Failure::failed(format_args!(
            "{why}\nAre the path MTUs the same on both sides? Here it is {path_mtu} (-m). {usual}"
        ));
    }
    Failure::failed(format_args!("{why}\n{usual}"))
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

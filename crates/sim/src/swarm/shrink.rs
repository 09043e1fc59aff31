//! A world that fails, made smaller.

use crate::peer::{Peer, Peers};

use super::Options;

/// A smaller world that still fails: fewer requests, pairs, devices and features.
pub(super) fn shrink(mut options: Options, fails: impl Fn(Options) -> bool) -> Options {
    loop {
        let before = options;
        for smaller in [options.requests / 2, options.requests.saturating_sub(1)] {
            let tried = Options { requests: smaller, ..options };
            if smaller != 0 && fails(tried) {
                options = tried;
                break;
            }
        }
        for smaller in [1, options.pairs / 2, options.pairs - 1] {
            let tried = Options { pairs: smaller, ..options };
            if smaller != 0 && smaller < options.pairs && fails(tried) {
                options = tried;
                break;
            }
        }
        let tried = Options { devices: 2, ..options };
        if options.devices > 2 && fails(tried) {
            options = tried;
        }
        for peers in [Peers::of(&[Peer::Roxe]), Peers::of(&[Peer::Roxe, options.peers.kind(0)])] {
            let tried = Options { peers, ..options };
            if options.peers.kinds() > peers.kinds() && fails(tried) {
                options = tried;
                break;
            }
        }
        for feature in options.features.iter() {
            let tried = Options { features: options.features.without(feature), ..options };
            if fails(tried) {
                options = tried;
            }
        }
        if options == before {
            return options;
        }
    }
}

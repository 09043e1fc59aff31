//! A world that fails, made smaller.

use crate::peer::{Peer, Peers};

use super::Recipe;

/// A smaller world that still fails: fewer requests, pairs, devices and features.
pub(super) fn shrink(mut recipe: Recipe, fails: impl Fn(Recipe) -> bool) -> Recipe {
    loop {
        let before = recipe;
        for smaller in [recipe.requests / 2, recipe.requests.saturating_sub(1)] {
            let tried = Recipe { requests: smaller, ..recipe };
            if smaller != 0 && fails(tried) {
                recipe = tried;
                break;
            }
        }
        for smaller in [1, recipe.pairs / 2, recipe.pairs - 1] {
            let tried = Recipe { pairs: smaller, ..recipe };
            if smaller != 0 && smaller < recipe.pairs && fails(tried) {
                recipe = tried;
                break;
            }
        }
        let tried = Recipe { devices: 2, ..recipe };
        if recipe.devices > 2 && fails(tried) {
            recipe = tried;
        }
        for peers in
            [Peers::of(&[Peer::Adapter]), Peers::of(&[Peer::Adapter, recipe.peers.kind(0)])]
        {
            let tried = Recipe { peers, ..recipe };
            if recipe.peers.kinds() > peers.kinds() && fails(tried) {
                recipe = tried;
                break;
            }
        }
        for feature in recipe.features.iter() {
            let tried = Recipe { features: recipe.features.without(feature), ..recipe };
            if fails(tried) {
                recipe = tried;
            }
        }
        if recipe == before {
            return recipe;
        }
    }
}

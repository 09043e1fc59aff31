//! Where an axis begins and ends, and what is written at it.

/// How values are laid out.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scale {
    /// From the least to the most.
    Linear,
    /// From 0 to a bit above the most.
    FromZero,
    /// From the tenth below the least to 1, which is the most there can be: near it small
    /// differences count.
    ToOne,
    /// By powers of ten.
    Log,
    /// One place for each of these words.
    Words(Vec<&'static str>),
}

/// A scale with its ends and its ticks.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Axis {
    scale: Scale,
    /// The ends, as places.
    pub(super) ends: (f64, f64),
    /// The ticks, as places.
    pub(super) ticks: Vec<f64>,
}

impl Axis {
    /// The axis on which all of these values have a place.
    pub(super) fn of(scale: &Scale, values: impl Iterator<Item = f64>) -> Self {
        let mut places = values.map(|value| place(scale, value)).filter(|at| at.is_finite());
        let first = places.next();
        let (least, most) = places
            .fold(first.map_or((0.0, 1.0), |at| (at, at)), |(least, most), at| {
                (least.min(at), most.max(at))
            });
        let (ends, ticks) = match scale {
            Scale::Linear => {
                let ends = if most > least { (least, most) } else { (least, least + 1.0) };
                (ends, even_ticks(ends, 10.0))
            }
            Scale::FromZero => {
                let ends = (0.0, if most > 0.0 { most * 1.12 } else { 1.0 });
                (ends, even_ticks(ends, 6.0))
            }
            Scale::ToOne => {
                let low = ((least * 10.0 - 1e-9).floor() / 10.0).clamp(0.0, 0.9);
                // A bit more, or the line at 1 would be the chart's own.
                let ends = (low, low + (1.0 - low) * 1.05);
                (ends, even_ticks(ends, 6.0))
            }
            Scale::Log => {
                let (low, high) = (least - 0.05, most + 0.05);
                // A picture of less than a decade would show chance only.
                let ends = if high - low < 1.0 { (low, low + 1.0) } else { (low, high) };
                (ends, log_ticks(ends))
            }
            Scale::Words(words) => {
                let count = words.len().max(1);
                ((-0.5, count as f64 - 0.5), (0..words.len()).map(|at| at as f64).collect())
            }
        };
        Self { scale: scale.clone(), ends, ticks }
    }

    /// Where a value stands.
    pub(super) fn place(&self, value: f64) -> f64 {
        place(&self.scale, value)
    }

    /// What is written at a place.
    pub(super) fn label(&self, at: f64) -> String {
        match &self.scale {
            Scale::Words(words) => {
                words.get(at.round() as usize).map_or_else(String::new, |word| (*word).to_owned())
            }
            Scale::Log => number(10_f64.powf(at)),
            Scale::Linear | Scale::FromZero | Scale::ToOne => number(at),
        }
    }
}

fn place(scale: &Scale, value: f64) -> f64 {
    if *scale == Scale::Log { value.max(1e-9).log10() } else { value }
}

/// About so many round numbers between the ends.
fn even_ticks((low, high): (f64, f64), count: f64) -> Vec<f64> {
    let rough = (high - low) / count;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|part| part * power);
    let step = step.into_iter().find(|step| *step >= rough * 0.999).unwrap_or(rough);
    let first = (low / step - 1e-9).ceil() as i64;
    let last = (high / step + 1e-9).floor() as i64;
    (first..=last).map(|at| at as f64 * step).collect()
}

/// Powers of ten, and 2 and 5 between them where there is room.
fn log_ticks((low, high): (f64, f64)) -> Vec<f64> {
    let parts: &[f64] = if high - low < 3.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let powers = low.floor() as i32..=high.floor() as i32;
    let ticks =
        powers.flat_map(|power| parts.iter().map(move |part| f64::from(power) + part.log10()));
    ticks.filter(|at| (low..=high).contains(at)).collect()
}

/// `250`, `0.25`, `20 k`, `1.5 M`
pub(super) fn number(value: f64) -> String {
    let (value, unit) = match value.abs() {
        large if large >= 999_999.5 => (value / 1e6, " M"),
        middle if middle >= 9_999.5 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let digits = match value.abs() {
        large if large >= 99.95 => 0,
        middle if middle >= 9.995 => 1,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    let text =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: &Scale, values: &[f64]) -> Vec<String> {
        let axis = Axis::of(scale, values.iter().copied());
        axis.ticks.iter().map(|at| axis.label(*at)).collect()
    }

    #[test]
    fn ticks_are_round_numbers_with_few_digits() {
        assert_eq!(labels(&Scale::FromZero, &[0.3, 38.0]), ["0", "10", "20", "30", "40"]);
        assert_eq!(labels(&Scale::FromZero, &[]), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        assert_eq!(
            labels(&Scale::FromZero, &[24_000.0]),
            ["0", "5000", "10 k", "15 k", "20 k", "25 k"]
        );
        assert_eq!(
            labels(&Scale::ToOne, &[0.973, 1.0]),
            ["0.9", "0.92", "0.94", "0.96", "0.98", "1"]
        );
        assert_eq!(labels(&Scale::ToOne, &[0.42, 1.0]), ["0.4", "0.6", "0.8", "1"]);
        assert_eq!(labels(&Scale::ToOne, &[1.0]).first().map(String::as_str), Some("0.9"));
        assert_eq!(labels(&Scale::Linear, &[0.01, 0.04]).len(), 7);
        assert_eq!(
            labels(&Scale::Log, &[64.0, 3e7]),
            ["100", "1000", "10 k", "100 k", "1 M", "10 M"]
        );
        assert_eq!(labels(&Scale::Log, &[1.0, 1.5]), ["1", "2", "5"]);
        assert_eq!(labels(&Scale::Words(vec!["host", "edge"]), &[0.0, 1.0]), ["host", "edge"]);
        assert_eq!([0.0, 1.5e6, 12_345.0, 0.25].map(number), ["0", "1.5 M", "12.3 k", "0.25"]);
    }

    #[test]
    fn every_value_has_its_place_between_the_ends() {
        for (scale, values) in [
            (Scale::Linear, vec![5.0]),
            (Scale::FromZero, vec![0.0, 7.0]),
            (Scale::ToOne, vec![0.125, 0.9, 1.0]),
            (Scale::Log, vec![1.0, 500.0]),
            (Scale::Words(vec!["a", "b", "c"]), vec![0.0, 2.0]),
        ] {
            let axis = Axis::of(&scale, values.iter().copied());
            for value in values {
                let at = axis.place(value);
                assert!((axis.ends.0..=axis.ends.1).contains(&at), "{scale:?}: {value}");
            }
            assert!(axis.ticks.iter().all(|at| (axis.ends.0..=axis.ends.1).contains(at)));
        }
    }
}

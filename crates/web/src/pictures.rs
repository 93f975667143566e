//! Pictures of GPUs that several pages show.

use minijinja::{Value, context};
use takt_draw::{Cell, Picture, Share, Texture, heat, ribbon};
use takt_jobs::NodeState;
use takt_model::words::count as counted;
use takt_questions::{GpuNow, GpuState, NodeNow, StripRow};

/// Share of a step from which the step counts as held and idle.
const MOSTLY: f32 = 0.5;

/// Utilization below which a GPU at work has little to do.
const LOW_BELOW: f64 = 0.25;

/// A part of the capacity ribbon: its name, its colour and texture, and the page behind it.
struct Part {
    name: &'static str,
    class: &'static str,
    texture: Texture,
    href: &'static str,
}

/// The parts of the capacity ribbon, in their order. Each GPU is in exactly one.
const PARTS: [Part; 7] = [
    part("busy", "s-busy", Texture::Plain, "/nodes?sort=-busy"),
    part("at low use", "s-low", Texture::Plain, "/nodes?sort=-busy"),
    part(
        "held and idle",
        "s-idle",
        Texture::Hatch,
        "/nodes?sort=-idle",
    ),
    part("free", "s-free", Texture::Plain, "/nodes"),
    part("drained", "s-drained", Texture::Hatch, "/nodes?sort=state"),
    part(
        "down or lost",
        "s-down",
        Texture::Cross,
        "/nodes?sort=state",
    ),
    part("not measured", "s-unknown", Texture::Plain, "/health"),
];

const fn part(
    name: &'static str,
    class: &'static str,
    texture: Texture,
    href: &'static str,
) -> Part {
    Part {
        name,
        class,
        texture,
        href,
    }
}

/// Place of a GPU among [`PARTS`].
fn part_of(gpu: &GpuNow) -> usize {
    match gpu.state {
        GpuState::Busy if gpu.utilization_ratio.is_some_and(|ratio| ratio < LOW_BELOW) => 1,
        GpuState::Busy => 0,
        GpuState::Idle => 2,
        GpuState::Free => 3,
        GpuState::Drained => 4,
        GpuState::Down | GpuState::Lost => 5,
        GpuState::Unknown => 6,
    }
}

/// The capacity ribbon: one bar of all GPUs by what they do, and the same in words. `None` without a GPU. Readers of the
/// status screen get no links.
pub fn capacity(nodes: &[NodeNow], has_links: bool) -> Option<Value> {
    // Each GPU counts in one part, so the parts add up to all.
    let mut counts = [0_u64; PARTS.len()];
    for gpu in nodes.iter().flat_map(|node| &node.gpus) {
        counts[part_of(gpu)] += 1;
    }
    let all: u64 = counts.iter().sum();

    let shares: Vec<Share> = PARTS
        .iter()
        .zip(counts)
        .map(|(part, count)| Share {
            count,
            class: part.class,
            texture: part.texture,
            title: format!("{} {}", counted(count), part.name),
            href: has_links.then(|| part.href.to_owned()),
        })
        .collect();
    // A part of nothing is not said.
    let said: Vec<&str> = shares
        .iter()
        .filter(|share| share.count > 0)
        .map(|share| share.title.as_str())
        .collect();
    let label = format!("{} GPUs: {}", counted(all), said.join(", "));

    let states: Vec<Value> = PARTS
        .iter()
        .zip(&shares)
        // These three are always named: that nothing is idle, or free, is news as well.
        .filter(|(part, share)| {
            share.count > 0 || matches!(part.class, "s-busy" | "s-idle" | "s-free")
        })
        .map(|(part, share)| {
            context! {
                name => part.name,
                class => part.class,
                count => share.count,
                href => share.href,
            }
        })
        .collect();
    (all > 0).then(|| {
        context! {
            picture => ribbon(&shares, label).inline("ribbon"),
            states,
            all,
        }
    })
}

/// The nodes with GPUs, then the others: of a large cluster, a phone shows a few rows only.
pub fn gpus_first(nodes: &[NodeNow]) -> impl Iterator<Item = &NodeNow> {
    let with = nodes.iter().filter(|node| !node.gpus.is_empty());
    with.chain(nodes.iter().filter(|node| node.gpus.is_empty()))
}

/// The cells of a strip.
fn cells(row: &StripRow) -> Vec<Cell> {
    row.steps
        .iter()
        .map(|step| match step {
            None => Cell::Unknown,
            Some(step) if step.idle_ratio > MOSTLY => Cell::Idle,
            // Not held and without work; a GPU that works unheld is shown as busy.
            Some(step) if step.held_ratio == 0.0 && step.utilization_ratio < 0.01 => Cell::Free,
            Some(step) => Cell::Busy(f64::from(step.utilization_ratio)),
        })
        .collect()
}

/// Strips below each other: a row for each GPU or node, `pitch` high, of which `bar` is filled.
pub fn strips<'r>(
    rows: impl IntoIterator<Item = &'r StripRow>,
    pitch: u32,
    bar: u32,
    label: String,
) -> Picture {
    let rows: Vec<Vec<Cell>> = rows.into_iter().map(cells).collect();
    heat(&rows, pitch, bar, label)
}

/// A node as a tile: a bar for each GPU, as high as its utilization; a dashed bar if the GPU is held
/// and idle, a cross if it is lost, nothing if it is not measured.
pub fn tile(node: &NodeNow) -> String {
    // Four paths for a node, not one for each GPU: a page may have thousands.
    let [mut known, mut busy, mut idle, mut lost] = <[String; 4]>::default();
    for (at, gpu) in node.gpus.iter().enumerate() {
        // Four units for each GPU: a bar of about three, and a gap.
        let x = 2 + at * 4;
        let height = gpu.utilization_ratio.unwrap_or(0.0).clamp(0.0, 1.0) * 18.0;
        match gpu.state {
            // An empty place, so that the other bars stay where they are.
            GpuState::Unknown | GpuState::Down => continue,
            GpuState::Lost => {
                lost.push_str(&format!("M{} 5l3 8m0-8l-3 8", x as f64 - 1.5));
                continue;
            }
            GpuState::Idle => idle.push_str(&format!("M{x} 18v-18")),
            // At least one unit, so that a GPU at work differs from a free one.
            GpuState::Busy => busy.push_str(&format!("M{x} 18v-{}", height.round().max(1.0))),
            GpuState::Free | GpuState::Drained => {}
        }
        // The full height behind the bar; an idle GPU is dashed instead.
        if gpu.state != GpuState::Idle {
            known.push_str(&format!("M{x} 18v-18"));
        }
    }

    let width = 1 + node.gpus.len().max(1) * 4;
    let paths = [("f", known), ("u", busy), ("w", idle), ("x", lost)];
    let paths: String = paths
        .iter()
        .filter(|(_, d)| !d.is_empty())
        .map(|(class, d)| format!("<path class=\"{class}\" d=\"{d}\"/>"))
        .collect();
    format!(
        "<svg viewBox=\"0 0 {width} 18\" aria-hidden=\"true\" preserveAspectRatio=\"none\">{paths}</svg>"
    )
}

/// CSS class of a node's tile.
pub fn tile_class(node: &NodeNow) -> &'static str {
    // A lost GPU needs repair, also in a node that works.
    let has_lost = node.gpus.iter().any(|gpu| gpu.state == GpuState::Lost);
    if node.is_unscraped {
        " off"
    } else if !node.is_up || has_lost {
        " bad"
    } else if is_unused(node) {
        " off"
    } else {
        ""
    }
}

/// Whether Slurm starts no jobs on the node, although nobody planned that.
pub fn is_unused(node: &NodeNow) -> bool {
    let state = NodeState::parse(node.state.as_deref().unwrap_or_default());
    state.condition().is_unavailable()
}

/// The states of a node's GPUs in words: `5 busy, 2 held and idle, 1 lost`.
pub fn words(node: &NodeNow) -> String {
    if node.is_unscraped {
        return "not scraped".to_owned();
    }
    if !node.is_up {
        return "does not answer".to_owned();
    }
    let counts: Vec<String> = GpuState::ALL
        .iter()
        .filter_map(|state| {
            let count = node.gpus.iter().filter(|gpu| gpu.state == *state).count();
            (count > 0).then(|| format!("{count} {}", state.words()))
        })
        .collect();
    if counts.is_empty() {
        "no GPU".to_owned()
    } else {
        counts.join(", ")
    }
}

/// State of a GPU in words: why it is lost, or `not measured: exporter does not answer`.
pub fn state_words(gpu: &GpuNow) -> String {
    match &gpu.reason {
        Some(reason) if gpu.state == GpuState::Lost => reason.clone(),
        Some(reason) => format!("{}: {reason}", gpu.state.words()),
        None => gpu.state.words().to_owned(),
    }
}

/// CSS class of a GPU's state.
pub fn state_class(state: GpuState) -> &'static str {
    match state {
        GpuState::Lost => "bad",
        GpuState::Idle => "warn",
        GpuState::Busy | GpuState::Free => "",
        GpuState::Down | GpuState::Drained | GpuState::Unknown => "dim",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_questions::GpuNow;

    /// A dead node, a lost card or a drained node must not make the cluster smaller.
    #[test]
    fn the_ribbon_holds_every_gpu_that_exists() {
        let gpu = |state, ratio| GpuNow {
            state,
            utilization_ratio: ratio,
            ..GpuNow::default()
        };
        // The same with a node that does not answer.
        for is_up in [true, false] {
            let node = NodeNow {
                is_up,
                gpus: GpuState::ALL
                    .iter()
                    .flat_map(|state| [gpu(*state, None), gpu(*state, Some(0.1))])
                    .collect(),
                ..NodeNow::default()
            };

            let shown = capacity(&[node], true).unwrap();
            let number = |value: &Value, name: &str| -> u64 {
                value.get_attr(name).unwrap().try_into().unwrap()
            };
            assert_eq!(number(&shown, "all"), 14);
            let states = shown.get_attr("states").unwrap();
            let sum: u64 = states
                .try_iter()
                .unwrap()
                .map(|state| number(&state, "count"))
                .sum();
            assert_eq!(sum, 14);
            let picture = shown.get_attr("picture").unwrap().to_string();
            assert!(
                picture.contains("14 GPUs: 1 busy, 1 at low use, 2 held and idle, 2 free, 2 drained, 4 down or lost, 2 not measured"),
                "{picture}"
            );
        }
        // A cluster without GPUs has no ribbon.
        assert!(capacity(&[NodeNow::default()], true).is_none());
    }

    #[test]
    fn nodes_without_gpus_are_tiles_at_the_end() {
        let node = |name: &str, gpus: usize| NodeNow {
            node: name.to_owned(),
            gpus: vec![GpuNow::default(); gpus],
            ..NodeNow::default()
        };

        let nodes = [
            node("c01", 0),
            node("g01", 2),
            node("c02", 0),
            node("h01", 1),
        ];
        let order: Vec<_> = gpus_first(&nodes).map(|node| node.node.as_str()).collect();
        assert_eq!(order, ["g01", "h01", "c01", "c02"]);
    }

    #[test]
    fn a_tile_shows_each_state_by_its_shape() {
        let gpu = |state, ratio| GpuNow {
            state,
            utilization_ratio: ratio,
            ..GpuNow::default()
        };
        let node = NodeNow {
            is_up: true,
            // One GPU in each state, from the left.
            gpus: vec![
                gpu(GpuState::Busy, Some(0.5)),
                gpu(GpuState::Idle, Some(0.0)),
                gpu(GpuState::Free, Some(0.0)),
                gpu(GpuState::Lost, None),
                gpu(GpuState::Unknown, None),
            ],
            ..NodeNow::default()
        };

        let tile = tile(&node);
        assert!(tile.contains("class=\"u\" d=\"M2 18v-9\""), "{tile}");
        assert!(tile.contains("class=\"w\" d=\"M6 18v-18\""), "{tile}");
        // Busy and free GPUs have the grey bar behind; lost and unmeasured ones have none.
        assert!(
            tile.contains("class=\"f\" d=\"M2 18v-18M10 18v-18\""),
            "{tile}"
        );
        assert!(tile.contains("class=\"x\" d=\"M12.5 5"), "{tile}");
        assert_eq!(
            words(&node),
            "1 lost, 1 busy, 1 held and idle, 1 free, 1 not measured"
        );
    }
}

//! Pictures of GPUs that several pages show.

use takt_draw::{Cell, Picture, heat};
use takt_jobs::NodeState;
use takt_questions::{GpuNow, GpuState, NodeNow, StripRow};

/// Share of a step from which the step counts as held and idle.
const MOSTLY: f32 = 0.5;

/// The cells of a strip.
fn cells(row: &StripRow) -> Vec<Cell> {
    row.steps
        .iter()
        .map(|step| match step {
            None => Cell::Unknown,
            Some(step) if step.idle_ratio > MOSTLY => Cell::Idle,
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
    let [mut known, mut busy, mut idle, mut lost] = <[String; 4]>::default();
    for (at, gpu) in node.gpus.iter().enumerate() {
        let x = 2 + at * 4;
        let height = gpu.utilization_ratio.unwrap_or(0.0).clamp(0.0, 1.0) * 18.0;
        match gpu.state {
            GpuState::Unknown | GpuState::Down => continue,
            GpuState::Lost => {
                lost.push_str(&format!("M{} 5l3 8m0-8l-3 8", x as f64 - 1.5));
                continue;
            }
            GpuState::Idle => idle.push_str(&format!("M{x} 18v-18")),
            GpuState::Busy => busy.push_str(&format!("M{x} 18v-{}", height.round().max(1.0))),
            GpuState::Free | GpuState::Drained => {}
        }
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
    let has_lost = node.gpus.iter().any(|gpu| gpu.state == GpuState::Lost);
    if !node.is_up || has_lost {
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

    #[test]
    fn a_tile_shows_each_state_by_its_shape() {
        let gpu = |state, ratio| GpuNow {
            state,
            utilization_ratio: ratio,
            ..GpuNow::default()
        };
        let node = NodeNow {
            is_up: true,
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

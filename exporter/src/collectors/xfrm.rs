//! IPsec: packets that could not be transformed, by cause.
//!
//! Source: `/proc/net/xfrm_stat`.

use crate::collector::{CollectError, Collector, OrAbsent};
use crate::file::KernelFile;
use crate::paths::Paths;
use crate::table::{Row, metrics_of};
use takt_model::{Metric, Samples};

struct Xfrm {
    xfrm_stat: KernelFile,
}

#[rustfmt::skip]
const FIELDS: &[Row] = &[
    Row::counter("XfrmInError", "node_xfrm_in_error_packets_total",
        "All errors not matched by other", &[]),
    Row::counter("XfrmInBufferError", "node_xfrm_in_buffer_error_packets_total",
        "No buffer is left", &[]),
    Row::counter("XfrmInHdrError", "node_xfrm_in_hdr_error_packets_total", "Header error", &[]),
    Row::counter("XfrmInNoStates", "node_xfrm_in_no_states_packets_total",
        "No state is found i.e. Either inbound SPI, address, or IPsec protocol at SA is \
         wrong", &[]),
    Row::counter("XfrmInStateProtoError", "node_xfrm_in_state_proto_error_packets_total",
        "Transformation protocol specific error e.g. SA key is wrong", &[]),
    Row::counter("XfrmInStateModeError", "node_xfrm_in_state_mode_error_packets_total",
        "Transformation mode specific error", &[]),
    Row::counter("XfrmInStateSeqError", "node_xfrm_in_state_seq_error_packets_total",
        "Sequence error i.e. Sequence number is out of window", &[]),
    Row::counter("XfrmInStateExpired", "node_xfrm_in_state_expired_packets_total",
        "State is expired", &[]),
    Row::counter("XfrmInStateMismatch", "node_xfrm_in_state_mismatch_packets_total",
        "State has mismatch option e.g. UDP encapsulation type is mismatch", &[]),
    Row::counter("XfrmInStateInvalid", "node_xfrm_in_state_invalid_packets_total",
        "State is invalid", &[]),
    Row::counter("XfrmInTmplMismatch", "node_xfrm_in_tmpl_mismatch_packets_total",
        "No matching template for states e.g. Inbound SAs are correct but SP rule is wrong", &[]),
    Row::counter("XfrmInNoPols", "node_xfrm_in_no_pols_packets_total",
        "No policy is found for states e.g. Inbound SAs are correct but no SP is found", &[]),
    Row::counter("XfrmInPolBlock", "node_xfrm_in_pol_block_packets_total", "Policy discards", &[]),
    Row::counter("XfrmInPolError", "node_xfrm_in_pol_error_packets_total", "Policy error", &[]),
    Row::counter("XfrmOutError", "node_xfrm_out_error_packets_total",
        "All errors which is not matched others", &[]),
    Row::counter("XfrmOutBundleGenError", "node_xfrm_out_bundle_gen_error_packets_total",
        "Bundle generation error", &[]),
    Row::counter("XfrmOutBundleCheckError", "node_xfrm_out_bundle_check_error_packets_total",
        "Bundle check error", &[]),
    Row::counter("XfrmOutNoStates", "node_xfrm_out_no_states_packets_total",
        "No state is found", &[]),
    Row::counter("XfrmOutStateProtoError", "node_xfrm_out_state_proto_error_packets_total",
        "Transformation protocol specific error", &[]),
    Row::counter("XfrmOutStateModeError", "node_xfrm_out_state_mode_error_packets_total",
        "Transformation mode specific error", &[]),
    Row::counter("XfrmOutStateSeqError", "node_xfrm_out_state_seq_error_packets_total",
        "Sequence error i.e. Sequence number overflow", &[]),
    Row::counter("XfrmOutStateExpired", "node_xfrm_out_state_expired_packets_total",
        "State is expired", &[]),
    Row::counter("XfrmOutPolBlock", "node_xfrm_out_pol_block_packets_total",
        "Policy discards", &[]),
    Row::counter("XfrmOutPolDead", "node_xfrm_out_pol_dead_packets_total", "Policy is dead", &[]),
    Row::counter("XfrmOutPolError", "node_xfrm_out_pol_error_packets_total", "Policy error", &[]),
    Row::counter("XfrmFwdHdrError", "node_xfrm_fwd_hdr_error_packets_total",
        "Forward routing of a packet is not allowed", &[]),
    Row::counter("XfrmOutStateInvalid", "node_xfrm_out_state_invalid_packets_total",
        "State is invalid, perhaps expired", &[]),
    Row::counter("XfrmAcquireError", "node_xfrm_acquire_error_packets_total",
        "State hasn’t been fully acquired before use", &[]),
];
const METRICS: &[Metric] = metrics_of!([], FIELDS);

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    Box::new(Xfrm {
        xfrm_stat: KernelFile::new(paths.procfs.join("net/xfrm_stat")),
    })
}

impl Collector for Xfrm {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let text = self.xfrm_stat.read();
        let text = text.or_absent("no IPsec in this kernel")?;

        let lines = text.lines();
        let counts = lines.filter_map(|line| line.split_once(char::is_whitespace));
        for row in FIELDS {
            let count = counts.clone().find(|(name, _)| *name == row.source);
            if let Some(count) = count.and_then(|(_, count)| count.trim_ascii().parse().ok()) {
                row.push::<&str>(&[], count, out);
            }
        }
        Ok(())
    }
}

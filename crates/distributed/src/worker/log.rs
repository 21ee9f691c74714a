//! A record of the tensors this task fetched from others, kept while a master asks for it.

use framework::{Delivery, RendezvousKey};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// How many transfers are kept; a master that forgets to switch the record off must not exhaust memory.
const MAX_TRANSFERS: usize = 10_000;

/// Transfers by step.
#[derive(Default)]
pub(super) struct TransferLog {
    is_on: AtomicBool,
    transfers: Mutex<Transfers>,
}

#[derive(Default)]
struct Transfers {
    by_step: BTreeMap<i64, Vec<(String, proto::NodeExecStats)>>,
    count: usize,
}

impl TransferLog {
    /// Whether anybody wants to know.
    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Notes one transfer.
    pub(super) fn note(&self, step: i64, key: &RendezvousKey, delivery: &Delivery, start: u64, end: u64) {
        let bytes = match delivery {
            Delivery::Tensor(tensor) => tensor.num_bytes(),
            Delivery::Dead => 0,
        };
        let mut parts = key.as_str().split(';');
        let (from, to, edge) = (parts.next(), parts.nth(1), parts.next());
        let micros = end.saturating_sub(start).max(1);
        let label = format!(
            "[{bytes}B] [{:.6}Mb/s] {} from {} to {}",
            bytes as f64 * 8.0 / micros as f64,
            edge.unwrap_or_default(),
            from.unwrap_or_default(),
            to.unwrap_or_default()
        );
        let stats = proto::NodeExecStats {
            node_name: "RecvTensor".into(),
            all_start_micros: start as i64,
            op_end_rel_micros: micros as i64,
            all_end_rel_micros: micros as i64,
            timeline_label: label,
            ..Default::default()
        };
        let mut transfers = self.transfers.lock();
        if transfers.count < MAX_TRANSFERS {
            transfers.count += 1;
            transfers.by_step.entry(step).or_default().push((to.unwrap_or_default().to_string(), stats));
        }
    }

    /// What one step has fetched so far, by device.
    pub(super) fn of_step(&self, step: i64) -> proto::StepStats {
        let transfers = self.transfers.lock();
        let mut devices: BTreeMap<String, Vec<proto::NodeExecStats>> = BTreeMap::new();
        for (device, stats) in transfers.by_step.get(&step).into_iter().flatten() {
            devices.entry(device.clone()).or_default().push(stats.clone());
        }
        let dev_stats = devices.into_iter().map(|(device, node_stats)| proto::DeviceStepStats {
            device,
            node_stats,
            ..Default::default()
        });
        proto::StepStats { dev_stats: dev_stats.collect() }
    }

    /// Switches the record on or off, clears it, or reads it.
    pub(super) fn answer(&self, request: &proto::LoggingRequest) -> proto::LoggingResponse {
        if request.enable_rpc_logging {
            self.is_on.store(true, Ordering::Relaxed);
        }
        if request.disable_rpc_logging {
            self.is_on.store(false, Ordering::Relaxed);
        }
        let step = request
            .fetch_step_id
            .iter()
            .map(|&step_id| proto::LabeledStepStats { step_id, step_stats: Some(self.of_step(step_id)) });
        let answer = proto::LoggingResponse { step: step.collect() };
        if request.clear {
            *self.transfers.lock() = Transfers::default();
        }
        answer
    }
}

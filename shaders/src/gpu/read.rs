//! Bytes back from the device: a staging buffer, filled by what is submitted, and a future that is done
//! when it is mapped.

use crate::executor::ExecutorError;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

#[derive(Debug, Default)]
struct Mapping {
    /// With the copy into the staging buffer, once that is submitted.
    submission: Option<wgpu::SubmissionIndex>,
    done: Option<Result<(), wgpu::BufferAsyncError>>,
    waker: Option<Waker>,
}

/// A read whose copy is recorded and not submitted.
#[derive(Debug)]
pub(super) struct Recorded {
    staging: wgpu::Buffer,
    mapping: Arc<Mutex<Mapping>>,
}

impl Recorded {
    /// The copy is in this submission: the bytes are asked for.
    pub(super) fn submitted(self, submission: wgpu::SubmissionIndex) {
        lock(&self.mapping).submission = Some(submission);
        let mapping = self.mapping;
        self.staging
            .map_async(wgpu::MapMode::Read, .., move |result| {
                let mut mapping = lock(&mapping);
                mapping.done = Some(result);
                if let Some(waker) = mapping.waker.take() {
                    waker.wake();
                }
            });
    }
}

/// Resolves to the bytes of a staging buffer.
#[derive(Debug)]
pub(super) struct ReadBack {
    device: wgpu::Device,
    staging: wgpu::Buffer,
    mapping: Arc<Mutex<Mapping>>,
}

impl ReadBack {
    /// Of a staging buffer, into which a copy is recorded.
    pub(super) fn new(device: wgpu::Device, staging: wgpu::Buffer) -> (Self, Recorded) {
        let mapping = Arc::new(Mutex::new(Mapping::default()));
        let recorded = Recorded {
            staging: staging.clone(),
            mapping: Arc::clone(&mapping),
        };
        let read = Self {
            device,
            staging,
            mapping,
        };
        (read, recorded)
    }
}

fn lock(mapping: &Mutex<Mapping>) -> MutexGuard<'_, Mapping> {
    mapping.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Future for ReadBack {
    type Output = Result<Vec<u8>, ExecutorError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Natively somebody has to wait for the queue: one thread drives a device, so it may be
        // this one. It waits for this read alone, not for what was submitted since. In a browser
        // this returns at once and the callback wakes us.
        let Some(submission) = lock(&self.mapping).submission.clone() else {
            let early = "a read was awaited before it was submitted";
            return Poll::Ready(Err(ExecutorError::Invalid(early.into())));
        };
        let wait = wgpu::PollType::Wait {
            submission_index: Some(submission),
            timeout: None,
        };
        if let Err(e) = self.device.poll(wait) {
            return Poll::Ready(Err(ExecutorError::DeviceLost(e.to_string())));
        }
        let mut mapping = lock(&self.mapping);
        match mapping.done.take() {
            None => {
                mapping.waker = Some(cx.waker().clone());
                Poll::Pending
            }
            Some(Err(e)) => {
                Poll::Ready(Err(ExecutorError::DeviceLost(format!("reading back: {e}"))))
            }
            Some(Ok(())) => Poll::Ready(match self.staging.get_mapped_range(..) {
                Ok(view) => {
                    let bytes = view.to_vec();
                    drop(view);
                    self.staging.unmap();
                    Ok(bytes)
                }
                // Nobody but a device that goes destroys it.
                Err(e) => Err(ExecutorError::DeviceLost(format!("reading back: {e}"))),
            }),
        }
    }
}

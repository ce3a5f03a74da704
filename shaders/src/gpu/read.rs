//! Bytes back from the device: a staging buffer and a future that is done when it is mapped.

use crate::executor::ExecutorError;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

#[derive(Debug, Default)]
struct Mapping {
    done: Option<Result<(), wgpu::BufferAsyncError>>,
    waker: Option<Waker>,
}

/// Resolves to the bytes of a staging buffer.
#[derive(Debug)]
pub(super) struct ReadBack {
    device: wgpu::Device,
    staging: wgpu::Buffer,
    /// With the copy into the staging buffer.
    submission: wgpu::SubmissionIndex,
    mapping: Arc<Mutex<Mapping>>,
}

impl ReadBack {
    /// Asks for the staging buffer's bytes; the copy into it is in this submission.
    pub(super) fn new(
        device: wgpu::Device,
        staging: wgpu::Buffer,
        submission: wgpu::SubmissionIndex,
    ) -> Self {
        let mapping = Arc::new(Mutex::new(Mapping::default()));
        let shared = Arc::clone(&mapping);
        staging.map_async(wgpu::MapMode::Read, .., move |result| {
            let mut mapping = shared.lock().unwrap_or_else(PoisonError::into_inner);
            mapping.done = Some(result);
            if let Some(waker) = mapping.waker.take() {
                waker.wake();
            }
        });
        Self {
            device,
            staging,
            submission,
            mapping,
        }
    }
}

impl Future for ReadBack {
    type Output = Result<Vec<u8>, ExecutorError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Natively somebody has to wait for the queue: one thread drives a device, so it may be
        // this one. It waits for this read alone, not for what was submitted since. In a browser
        // this returns at once and the callback wakes us.
        let wait = wgpu::PollType::Wait {
            submission_index: Some(self.submission.clone()),
            timeout: None,
        };
        if let Err(e) = self.device.poll(wait) {
            return Poll::Ready(Err(ExecutorError::DeviceLost(e.to_string())));
        }
        let mut mapping = self.mapping.lock().unwrap_or_else(PoisonError::into_inner);
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

//! Work that is given up when something else comes first.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

/// Does `work` until `end` resolves; gives what it made, if it came first.
pub async fn until<T>(end: impl Future<Output = ()>, work: impl Future<Output = T>) -> Option<T> {
    let mut end = pin!(end);
    let mut work = pin!(work);
    poll_fn(|cx| {
        if end.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        work.as_mut().poll(cx).map(Some)
    })
    .await
}

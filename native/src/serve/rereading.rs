//! What is read anew when that is wished: on a thread that may wait for it, once at a time. Who wishes waits for
//! nothing, so that whoever hears signals hears the next one. Knows not what is read.

use std::sync::Arc;

use tokio::sync::Notify;
use tokio::task::spawn_blocking;

/// Takes wishes.
#[derive(Debug)]
pub struct Rereading(Arc<Notify>);

impl Rereading {
    /// Has `read` called at each wish; must be called inside the runtime.
    pub fn start(read: impl Fn() + Send + Sync + 'static) -> Self {
        let (wished, read) = (Arc::new(Notify::new()), Arc::new(read));
        let heard = Arc::clone(&wished);
        tokio::spawn(async move {
            loop {
                heard.notified().await;
                let read = Arc::clone(&read);
                // A panic is told by its hook, and the next wish is heard.
                let _ = spawn_blocking(move || read()).await;
            }
        });
        Self(wished)
    }

    /// Wishes it, after what is read already. Wishes that come meanwhile are one.
    pub fn wish(&self) {
        self.0.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn who_wishes_waits_for_nothing_and_no_wish_is_lost() {
        let runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = { runtime }.worker_threads(1).build().unwrap();
        let (begins, began) = channel();
        let (open, gate) = channel::<()>();
        let gate = Mutex::new(gate);
        let begins_again = || began.recv_timeout(Duration::from_secs(20)).unwrap();
        let rereading = runtime.block_on(async {
            Rereading::start(move || {
                begins.send(()).unwrap();
                gate.lock().unwrap().recv().unwrap();
            })
        });
        rereading.wish();
        begins_again();
        // It is read, and does not end.
        for _ in 0..3 {
            rereading.wish();
        }
        assert!(began.try_recv().is_err());
        for _ in 0..2 {
            open.send(()).unwrap();
        }
        begins_again();
        rereading.wish();
        begins_again();
        open.send(()).unwrap();
        drop(runtime);
        assert!(began.recv().is_err());
    }
}

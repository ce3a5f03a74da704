//! What the host says of this process, read by one at a time and kept for a moment: however many scrape, they take one
//! thread that may wait. Knows no format.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use crate::process::Process;

/// For so long what was read is told again.
const FRESH: Duration = Duration::from_secs(1);

/// What was read last, and when.
#[derive(Debug, Default)]
pub struct ProcessFacts(Mutex<Option<(Instant, Process)>>);

impl ProcessFacts {
    /// The process as it is now, or was a moment ago.
    pub async fn now(&self) -> Process {
        let mut last = self.0.lock().await;
        if let Some((read, process)) = &*last
            && read.elapsed() < FRESH
        {
            return *process;
        }
        // It reads files.
        let process = spawn_blocking(Process::now).await.unwrap_or_default();
        *last = Some((Instant::now(), process));
        process
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_a_moment_ago_is_told_again() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().build().unwrap().block_on(async {
            let facts = ProcessFacts::default();
            let said = Process {
                threads: Some(12_345),
                ..Process::default()
            };
            for (age, is_told) in [(Duration::ZERO, true), (2 * FRESH, false)] {
                *facts.0.lock().await = Some((Instant::now() - age, said));
                assert_eq!(facts.now().await == said, is_told);
            }
        });
    }
}

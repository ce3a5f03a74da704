//! The log's lines on their way to who reads it: a queue with a bound, and a thread that waits for the reader, so that
//! nobody else does. What has no room is dropped and counted. Knows neither what lines say nor which are written.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Most bytes of lines that wait.
const ROOM: usize = 1 << 20;

/// Bytes on top of that, for the few lines that are always said.
const RESERVE: usize = 64 << 10;

/// Between two tries to write where that would have to be waited for.
const PAUSE: Duration = Duration::from_millis(10);

#[derive(Debug, Default)]
struct State {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    /// One is taken out and not written yet.
    is_writing: bool,
    dropped: u64,
    /// How many of them the log does not tell yet.
    untold: u64,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// Takes lines, and never waits. Clones are the same queue.
#[derive(Clone, Debug)]
pub struct LogQueue(Arc<Shared>);

impl LogQueue {
    /// Writes lines to `sink` from now on. Once lines were dropped and there is room again, `tell` is to log how many.
    ///
    /// # Errors
    /// The host gives no thread.
    pub fn start(
        sink: impl Write + Send + 'static,
        tell: impl Fn(u64) + Send + 'static,
    ) -> io::Result<Self> {
        let queue = Self(Arc::default());
        let taken = queue.clone();
        let mut sink = LineSink {
            sink,
            is_torn: false,
        };
        thread::Builder::new().name("log".into()).spawn(move || {
            loop {
                // Where it cannot be written (its reader has gone, its disk is full), work goes on without it.
                let is_written = sink.write(&taken.next()).is_ok();
                let untold = taken.written(is_written);
                if untold > 0 {
                    tell(untold);
                }
            }
        })?;
        Ok(queue)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a line.
    fn next(&self) -> Vec<u8> {
        let is_empty = |state: &mut State| state.lines.is_empty();
        let state = self.0.changed.wait_while(self.state(), is_empty);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        let line = state.lines.pop_front().unwrap_or_default();
        state.bytes -= line.len();
        state.is_writing = true;
        line
    }

    /// That line is written, or could not be. Gives how many dropped ones are to be told now.
    fn written(&self, is_written: bool) -> u64 {
        let mut state = self.state();
        state.is_writing = false;
        if !is_written {
            state.dropped += 1;
            state.untold += 1;
        }
        let is_roomy = is_written && state.bytes < ROOM / 2;
        let untold = match is_roomy {
            true => std::mem::take(&mut state.untold),
            false => 0,
        };
        drop(state);
        self.0.changed.notify_all();
        untold
    }

    /// Takes a line, if there is room.
    pub fn push(&self, line: &[u8]) {
        self.push_within(line, ROOM);
    }

    /// Takes one of the few lines that are always said.
    pub fn push_always(&self, line: &[u8]) {
        self.push_within(line, ROOM + RESERVE);
    }

    fn push_within(&self, line: &[u8], room: usize) {
        let mut state = self.state();
        if state.bytes + line.len() > room {
            state.dropped += 1;
            state.untold += 1;
            return;
        }
        state.bytes += line.len();
        state.lines.push_back(line.to_owned());
        drop(state);
        self.0.changed.notify_all();
    }

    /// Lines that had no room or could not be written.
    pub fn dropped(&self) -> u64 {
        self.state().dropped
    }

    /// Waits until all lines are written, at most so long.
    pub fn flush(&self, most: Duration) {
        let is_busy = |state: &mut State| state.is_writing || !state.lines.is_empty();
        // What is not read by then is lost with the program.
        let _ = self
            .0
            .changed
            .wait_timeout_while(self.state(), most, is_busy);
    }
}

/// Where lines are written, each beginning a line of its own whatever became of the one before.
struct LineSink<W> {
    sink: W,
    /// The end of what was written last is missing.
    is_torn: bool,
}

impl<W: Write> LineSink<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        if self.is_torn {
            self.write_piece(b"\n")?;
            self.is_torn = false;
        }
        let mut left = line;
        while !left.is_empty() {
            let written = self.write_piece(left)?;
            left = &left[written..];
            self.is_torn = !left.is_empty();
        }
        Ok(())
    }

    /// Writes as much as is taken, at least a byte. Who made standard error non-blocking did not mean that lines of it
    /// are lost.
    fn write_piece(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.sink.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(PAUSE),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                written => return written,
            }
        }
    }
}

impl Write for LogQueue {
    /// These bytes are a line.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    const PATIENCE: Duration = Duration::from_secs(20);

    /// Says what it is to write, and writes when it is let.
    struct Stalled(Sender<String>, Receiver<()>);

    impl Write for Stalled {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.send(String::from_utf8_lossy(bytes).into_owned());
            self.1.recv().map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_waits_costs_lines_that_are_counted_and_told_once() {
        let (says, said) = channel();
        let (lets, is_let) = channel();
        let (tells, told) = channel();
        let tell = move |count| tells.send(count).unwrap();
        let queue = LogQueue::start(Stalled(says, is_let), tell).unwrap();
        let next = || said.recv_timeout(PATIENCE).unwrap();
        queue.push(b"first");
        assert_eq!(next(), "first");
        // It is not written; so much has room behind it.
        let line = vec![b'a'; ROOM / 4];
        for _ in 0..7 {
            queue.push(&line);
        }
        queue.push_always(b"always");
        assert_eq!(queue.dropped(), 3);
        queue.flush(Duration::ZERO);
        assert!(told.try_recv().is_err());
        for _ in 0..4 {
            lets.send(()).unwrap();
            assert_eq!(next().len(), line.len());
        }
        lets.send(()).unwrap();
        assert_eq!(next(), "always");
        lets.send(()).unwrap();
        assert_eq!(told.recv_timeout(PATIENCE), Ok(3));
        queue.push(b"last");
        assert_eq!(next(), "last");
        lets.send(()).unwrap();
        queue.flush(PATIENCE);
        assert!(told.try_recv().is_err());
        assert_eq!(queue.dropped(), 3);
        // Its reader has gone: that is no reason to tell it there.
        drop(lets);
        queue.push(b"unheard");
        queue.flush(PATIENCE);
        assert_eq!(queue.dropped(), 4);
        assert!(told.try_recv().is_err());
    }

    /// A sink that takes so many bytes at a time, or fails so.
    struct Planned(Vec<Result<usize, ErrorKind>>, Arc<Mutex<Vec<u8>>>);

    impl Write for Planned {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let most = match self.0.is_empty() {
                true => bytes.len(),
                false => self.0.remove(0)?,
            };
            let taken = &bytes[..bytes.len().min(most)];
            self.1.lock().unwrap().extend_from_slice(taken);
            Ok(taken.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_tears_one_line_and_what_is_lost_is_told() {
        let text = Arc::default();
        // The second line is torn; for the third there is not even room for an end of that.
        let full = Err(ErrorKind::StorageFull);
        let plan = vec![Ok(99), Ok(3), full, full, Ok(1), Ok(2), Ok(99)];
        let (tells, told) = channel();
        let tell = move |count| tells.send(count).unwrap();
        let queue = LogQueue::start(Planned(plan, Arc::clone(&text)), tell).unwrap();
        for line in [b"first\n", b"secnd\n", b"third\n", b"forth\n"] {
            queue.push(line);
            queue.flush(PATIENCE);
        }
        assert_eq!(*text.lock().unwrap(), b"first\nsec\nforth\n");
        assert_eq!(told.recv_timeout(PATIENCE), Ok(2));
        assert_eq!(queue.dropped(), 2);
    }

    #[test]
    fn what_would_block_is_waited_for() {
        let text = Arc::default();
        let blocks = Err(ErrorKind::WouldBlock);
        let plan = vec![Ok(2), blocks, Err(ErrorKind::Interrupted), blocks, Ok(1)];
        let queue = LogQueue::start(Planned(plan, Arc::clone(&text)), |_| {}).unwrap();
        queue.push(b"first\n");
        queue.flush(PATIENCE);
        assert_eq!(*text.lock().unwrap(), b"first\n");
        assert_eq!(queue.dropped(), 0);
    }
}

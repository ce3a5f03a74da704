//! Whether an engine can compute and what it has to do, as metrics beside those that it keeps itself.
//! Knows no engine.

use super::mailbox::{Health, Load};
use crate::engine::metrics::{MetricFamily, MetricValue};
use std::time::Duration;

/// Whether a model has an engine that can compute; also for whoever could make none.
pub fn engine_up(is_up: bool) -> MetricFamily {
    MetricFamily {
        name: "twoclock:engine_up",
        help: "1 while the engine can compute; 0 while its device is replaced, when it has ended, and where the model \
               could not be loaded when it was last tried.",
        value: MetricValue::Gauge(f64::from(u8::from(is_up))),
    }
}

/// For how long an engine has computed its step, as its clock says to whoever asks.
pub fn step_running(span: Duration) -> MetricFamily {
    MetricFamily {
        name: "twoclock:step_running_seconds",
        help: "Time since the step began that is computed now, seconds; 0 where there is none. Counts are told between \
               two steps: one that takes long leaves them as they were.",
        value: MetricValue::Gauge(span.as_secs_f64()),
    }
}

/// Everything under its name, before what the engine counts.
pub(super) fn with_counts(
    health: Health,
    load: Load,
    counts: &[MetricFamily],
) -> Vec<MetricFamily> {
    let vitals = families(health, load).into_iter();
    vitals.chain(counts.iter().cloned()).collect()
}

fn families(health: Health, load: Load) -> [MetricFamily; 4] {
    [
        engine_up(health == Health::Ready),
        MetricFamily {
            name: "twoclock:device_recoveries",
            help: "Times a lost device was replaced.",
            value: MetricValue::Counter(load.num_recoveries as u64),
        },
        MetricFamily {
            name: "twoclock:num_requests",
            help: "Requests that are not over, those included that nobody reads.",
            value: MetricValue::Gauge(load.num_requests as f64),
        },
        MetricFamily {
            name: "twoclock:num_requests_unread",
            help: "Of them those that are set aside until somebody reads them.",
            value: MetricValue::Gauge(load.num_unread as f64),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::super::fake_engine::*;
    use super::super::mailbox::Mailbox;
    use super::super::{HandleOptions, Turn};
    use super::*;
    use pollster::block_on;
    use std::collections::BTreeSet;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Poll, Wake, Waker};

    fn value<'a>(families: &'a [MetricFamily], name: &str) -> &'a MetricValue {
        let mut found = families.iter().filter(|family| family.name == name);
        let family = found.next().unwrap_or_else(|| panic!("{name}"));
        assert!(found.next().is_none(), "{name} is given twice");
        &family.value
    }

    #[test]
    fn a_handle_reads_what_its_engine_counts() {
        let fate = SharedFate::default();
        fate.borrow_mut().lost_at = BTreeSet::from([3]);
        let (mut driver, handle) = engine(&fate);
        let mut streams: Vec<_> = (0..2).map(|index| submit(&handle, index)).collect();
        use_up(&mut driver, &mut streams);
        let mut late = submit(&handle, 2);
        let mut context = Context::from_waker(Waker::noop());
        {
            let mut run = pin!(driver.run());
            let mut ask = pin!(handle.metrics());
            assert!(ask.as_mut().poll(&mut context).is_pending());
            assert!(run.as_mut().poll(&mut context).is_pending());
            let Poll::Ready(families) = ask.poll(&mut context) else {
                panic!("the driver was there and did not answer");
            };
            let is = |name, expected| assert_eq!(value(&families, name), &expected, "{name}");
            is("twoclock:engine_up", MetricValue::Gauge(1.0));
            is("twoclock:device_recoveries", MetricValue::Counter(1));
            is("twoclock:num_requests", MetricValue::Gauge(1.0));
            is("vllm:generation_tokens", MetricValue::Counter(20 + 21));
            is("vllm:num_requests_waiting", MetricValue::Gauge(1.0));
            // Until nobody reads the last one, and it sleeps.
            for _ in 0..40 {
                assert!(run.as_mut().poll(&mut context).is_pending());
            }
            let mut ask = pin!(handle.metrics());
            assert!(ask.as_mut().poll(&mut context).is_pending());
            assert!(run.as_mut().poll(&mut context).is_pending());
            let Poll::Ready(families) = ask.poll(&mut context) else {
                panic!("the driver was there and did not answer");
            };
            let is = |name, expected| assert_eq!(value(&families, name), &expected, "{name}");
            is("twoclock:num_requests", MetricValue::Gauge(1.0));
            is("twoclock:num_requests_unread", MetricValue::Gauge(1.0));
            is("vllm:num_requests_waiting", MetricValue::Gauge(0.0));
        }
        assert_eq!(read(&mut late).unwrap().len(), 1);
        handle.stop();
        while block_on(driver.turn()) != Turn::Ended {}
        drop(driver);
        let families = block_on(handle.metrics());
        let up = value(&families, "twoclock:engine_up");
        assert_eq!(up, &MetricValue::Gauge(0.0));
        let MetricValue::Counter(tokens) = value(&families, "vllm:generation_tokens") else {
            panic!("no count");
        };
        assert!((41 + 8..41 + 20).contains(tokens), "{tokens} tokens");
    }

    #[test]
    fn who_asks_waits_for_no_device() {
        let mailbox = Mailbox::new(HandleOptions::default(), 1);
        let mut context = Context::from_waker(Waker::noop());
        let mut ask = pin!(mailbox.ask_counts());
        assert!(ask.as_mut().poll(&mut context).is_pending());
        mailbox.set_health(Health::Recovering);
        let Poll::Ready((_, health, load)) = ask.as_mut().poll(&mut context) else {
            panic!("waits for a device");
        };
        let up = families(health, load).to_vec();
        assert_eq!(value(&up, "twoclock:engine_up"), &MetricValue::Gauge(0.0));
        // With the next device it waits again.
        mailbox.set_health(Health::Ready);
        assert!(ask.poll(&mut context).is_pending());
    }

    /// However long a step takes there are the counts of before it, and who gives up waiting is not woken.
    #[test]
    fn who_cannot_wait_hears_what_was() {
        let fate = SharedFate::default();
        let (mut driver, handle) = engine(&fate);
        let tokens = |families: &[MetricFamily]| value(families, "vllm:generation_tokens").clone();
        assert_eq!(tokens(&handle.last_metrics()), MetricValue::Counter(0));
        let mut stream = submit(&handle, 0);
        let mut context = Context::from_waker(Waker::noop());
        let woken = Arc::new(Woken::default());
        {
            let mut ask = pin!(handle.metrics());
            let waker = Waker::from(Arc::clone(&woken));
            assert!(
                ask.as_mut()
                    .poll(&mut Context::from_waker(&waker))
                    .is_pending()
            );
            assert_eq!(Arc::strong_count(&woken), 3);
        }
        fate.borrow_mut().hangs = true;
        let mut turn = Box::pin(driver.turn());
        for _ in 0..3 {
            assert!(turn.as_mut().poll(&mut context).is_pending());
            assert_eq!(handle.step_began(), Some(Duration::ZERO));
            assert_eq!(tokens(&handle.last_metrics()), MetricValue::Counter(0));
            let requests = value(&handle.last_metrics(), "twoclock:num_requests").clone();
            assert_eq!(requests, MetricValue::Gauge(1.0));
        }
        assert!(!woken.0.load(Ordering::Relaxed));
        assert_eq!(Arc::strong_count(&woken), 1);
        fate.borrow_mut().hangs = false;
        assert_eq!(block_on(turn), Turn::Stepped);
        assert_eq!(handle.step_began(), None);
        use_up(&mut driver, std::slice::from_mut(&mut stream));
    }

    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

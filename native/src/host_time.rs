//! The date, for chat templates that ask for it.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use twoclock_core::text::strftime::CivilTime;
use twoclock_core::text::template::StrftimeNow;

/// Formats the present moment (UTC).
pub fn strftime() -> StrftimeNow {
    Arc::new(|format| {
        let seconds = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs() as i64);
        CivilTime::from_seconds(seconds).format(format)
    })
}

//! Rate limit for administrative writes: a number of calls of each method in a minute, for each device and address.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Writes of one method that one client may make in a window.
pub(crate) const MAX_WRITES: u32 = 30;
/// The length of the window.
pub(crate) const WINDOW: Duration = Duration::from_secs(60);
/// Maximum number of clients and methods that are counted; beyond it, those whose window is over are forgotten, then
/// all.
const MAX_COUNTED: usize = 10_000;

type WriterKey = (&'static str, Option<String>, IpAddr);

/// Counts administrative writes.
#[derive(Default)]
pub(crate) struct Writes {
    counted: Mutex<HashMap<WriterKey, (Instant, u32)>>,
}

impl Writes {
    /// Counts a write; the error is how long to wait.
    pub(crate) fn take(
        &self,
        method: &'static str,
        device: Option<&str>,
        address: IpAddr,
        now: Instant,
    ) -> Result<(), Duration> {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        if counted.len() >= MAX_COUNTED {
            counted.retain(|_, (since, _)| now.duration_since(*since) < WINDOW);
            if counted.len() >= MAX_COUNTED {
                counted.clear();
            }
        }
        let (since, count) = counted.entry((method, device.map(str::to_owned), address)).or_insert((now, 0));
        let passed = now.duration_since(*since);
        if passed >= WINDOW {
            (*since, *count) = (now, 0);
        } else if *count >= MAX_WRITES {
            return Err(WINDOW - passed);
        }
        *count += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thirty_first_write_of_a_minute_waits_and_nobody_else_does() {
        let (writes, now) = (Writes::default(), Instant::now());
        let (here, there): (IpAddr, IpAddr) = ("127.0.0.1".parse().unwrap(), "203.0.113.9".parse().unwrap());
        for _ in 0..MAX_WRITES {
            writes.take("a", None, here, now).unwrap();
        }
        assert_eq!(writes.take("a", None, here, now + Duration::from_secs(20)), Err(Duration::from_secs(40)));
        assert!(writes.take("b", None, here, now).is_ok());
        assert!(writes.take("a", Some("d"), here, now).is_ok());
        assert!(writes.take("a", None, there, now).is_ok());
        assert!(writes.take("a", None, here, now + WINDOW).is_ok());
    }
}

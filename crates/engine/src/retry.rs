//! The one loop that waits for something unavailable. Each caller decides which errors mean that, how long to pause
//! after each, and what to log: see [`Outage`](crate::outage::Outage) and `refresh/guard.rs`.

use std::future::Future;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// Calls until an answer arrives. `wait_after` turns an error into the pause before the next call, or into an error
/// that waiting cannot cure, which ends the loop. None: `stop` fired first. There is always one call.
pub(crate) async fn until_available<T, E, Fatal, Call, Answer>(
    stop: &CancellationToken,
    mut call: Call,
    mut wait_after: impl FnMut(E) -> Result<Duration, Fatal>,
) -> Option<Result<T, Fatal>>
where
    Call: FnMut() -> Answer,
    Answer: Future<Output = Result<T, E>>,
{
    loop {
        let wait = match call().await.map_err(&mut wait_after) {
            Ok(answer) => return Some(Ok(answer)),
            Err(Err(error)) => return Some(Err(error)),
            Err(Ok(wait)) => wait,
        };
        stop.run_until_cancelled(tokio::time::sleep(wait)).await?;
    }
}

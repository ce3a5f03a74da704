//! From a request to what its handler makes of its body: the body is read, the model it names is lent, and it is looked
//! at when it is its turn, all in the time that a request has. Knows no protocol.

use axum::extract::Request;
use axum::response::Response;
use tokio::time::{Instant, timeout_at};

use super::api_error::ApiError;
use super::app::App;
use super::lease::Lease;
use super::offered::Offered;
use super::request_body::RequestBody;
use super::request_record::RequestRecord;
use super::shutdown::Phase;
use super::until::until;
use crate::openai::Refusal;

/// Answers in the time that a request has.
///
/// # Errors
/// The answer's, or that the time is over.
pub async fn within(
    app: &App,
    answer: impl AsyncFnOnce(Instant) -> Result<Response, ApiError>,
) -> Result<Response, ApiError> {
    let deadline = Instant::now() + app.settings.request_timeout;
    match timeout_at(deadline, answer(deadline)).await {
        Ok(answered) => answered,
        Err(_) => Err(ApiError::timed_out()),
    }
}

/// Has `look` look at the body of a request beside the model it names, in the lane of the body's length. Whether such
/// a request can be answered by a model at all `fits` says before that is loaded. To be called inside [`within`]:
/// bodies, models and turns are waited for.
///
/// # Errors
/// The body's, the model's, or what `fits` or `look` says.
pub async fn read<T: Send + 'static>(
    app: &App,
    request: Request,
    fits: impl FnOnce(&Offered) -> Result<(), Refusal>,
    look: impl FnOnce(Lease, RequestBody) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let record = RequestRecord::of(&request);
    let body = RequestBody::read(request, app).await?;
    let length = body.num_bytes();
    let named = move || (body.model(), body);
    let (name, body) = app.reading.run(length, named).await?;
    // Who waits for a model when the server stops is told so: it may be there much later.
    let name = name?;
    let lease = app.models.lease(name.as_deref(), fits, &record);
    let lease = until(app.shutdown.reached(Phase::Stopped), lease).await;
    let lease = lease.ok_or_else(ApiError::shutting_down)??;
    app.reading.run(length, move || look(lease, body)).await?
}

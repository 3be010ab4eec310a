//! The `model` field of a multipart form.

use super::{Model, SpliceError};

/// The boundary named by a `content-type`, where it is multipart/form-data.
pub fn multipart_boundary(_content_type: &str) -> Option<String> {
    todo!()
}

/// Finds the form field `model`; its span is the bare value. `Ok(None)`: there is none.
///
/// # Errors
/// The body has not the shape of multipart, or names `model` twice.
pub fn multipart_model<'a>(_body: &'a [u8], _boundary: &str) -> Result<Option<Model<'a>>, SpliceError> {
    todo!()
}

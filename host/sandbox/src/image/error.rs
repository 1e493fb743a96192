//! What can be wrong with a stored image.

use thiserror::Error;
use weir_model::Digest;

/// Why a stored image cannot be used. `image` in a message counts the images of a chain from 0, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ImageError {
    /// There is no image at all.
    #[error("cannot restore from an empty chain of images")]
    Empty,
    /// The bytes do not start like an image.
    #[error("image {image} is not a memory image: it starts with {start:02x?}")]
    NotAnImage {
        /// Place in the chain.
        image: usize,
        /// Its first bytes.
        start: Vec<u8>,
    },
    /// Written by a version of the host with another format.
    #[error("image {image} has format {version}, this host reads {supported}; use the host that wrote it or a newer one")]
    Version {
        /// Place in the chain.
        image: usize,
        /// Its format.
        version: u16,
        /// What can be read.
        supported: u16,
    },
    /// Bytes are missing or left over.
    #[error("image {image} is truncated or overlong: it has {actual} bytes and says it has {expected}")]
    Length {
        /// Place in the chain.
        image: usize,
        /// Bytes there are.
        actual: usize,
        /// Bytes there should be.
        expected: u64,
    },
    /// The bytes are those that were stored, and make no sense.
    #[error("image {image} makes no sense: {what}; this is a bug, or the image was forged")]
    Malformed {
        /// Place in the chain.
        image: usize,
        /// What is wrong.
        what: String,
    },
    /// A capture where a template is needed, or the other way round.
    #[error("image {image} is a {actual} where a {expected} is needed")]
    Kind {
        /// Place in the chain.
        image: usize,
        /// What it is.
        actual: &'static str,
        /// What is needed.
        expected: &'static str,
    },
    /// It belongs to other code.
    #[error(
        "image {image} belongs to component {image_digest}, not to {component}; state of other code can only be moved as rows (a portable savepoint)"
    )]
    WrongComponent {
        /// Place in the chain.
        image: usize,
        /// The component that wrote it.
        image_digest: Digest,
        /// The component that should read it.
        component: Digest,
    },
    /// It belongs to another template of the same code.
    #[error(
        "image {image} was captured over template {image_template:032x}, not over {template:032x}; restore the template stored with it first"
    )]
    WrongTemplate {
        /// Place in the chain.
        image: usize,
        /// The template it needs.
        image_template: u128,
        /// The template at hand.
        template: u128,
    },
    /// The images of a chain are not in order.
    #[error("image {image} is of checkpoint {checkpoint}, the one before it of {previous}; a chain is given oldest first")]
    Order {
        /// Place in the chain.
        image: usize,
        /// Its checkpoint.
        checkpoint: u64,
        /// The checkpoint before it.
        previous: u64,
    },
    /// Its memories or globals are not those of the component or of the image before it.
    #[error("image {image} does not fit: {what}")]
    Shape {
        /// Place in the chain.
        image: usize,
        /// What differs.
        what: String,
    },
}

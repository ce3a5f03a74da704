//! (see the layer's files)

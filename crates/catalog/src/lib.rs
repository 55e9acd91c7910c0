//! What tools exist and who may see them.

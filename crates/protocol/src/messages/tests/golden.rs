//! Bytes from the Java client.

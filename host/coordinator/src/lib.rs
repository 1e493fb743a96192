//! Job lifecycle.

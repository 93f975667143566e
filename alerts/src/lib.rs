//! Rules, alert state, grouping and notifiers.

//! The protobuf messages, without the fields that Takt does not use.

/// `prometheus.WriteRequest` (`prompb/remote.proto`).
pub mod v1 {
    /// A request.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct WriteRequest {
        /// The series; a series may occur more than once.
        #[prost(message, repeated, tag = "1")]
        pub timeseries: Vec<TimeSeries>,
    }

    /// A series with some of its samples.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct TimeSeries {
        /// Labels, sorted by name.
        #[prost(message, repeated, tag = "1")]
        pub labels: Vec<Label>,
        /// Samples in order of time.
        #[prost(message, repeated, tag = "2")]
        pub samples: Vec<Sample>,
    }

    /// A label.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Label {
        /// Name of the label.
        #[prost(string, tag = "1")]
        pub name: String,
        /// Value of the label.
        #[prost(string, tag = "2")]
        pub value: String,
    }

    /// A sample.
    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub struct Sample {
        /// The value. A NaN with the bits `0x7ff0000000000002` ends the series.
        #[prost(double, tag = "1")]
        pub value: f64,
        /// Milliseconds since 1970.
        #[prost(int64, tag = "2")]
        pub timestamp: i64,
    }
}

/// `io.prometheus.write.v2.Request`, release candidate 4.
pub mod v2 {
    /// A request.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Request {
        /// Texts, each once. The first is empty.
        #[prost(string, repeated, tag = "4")]
        pub symbols: Vec<String>,
        /// The series; a series may occur more than once.
        #[prost(message, repeated, tag = "5")]
        pub timeseries: Vec<TimeSeries>,
    }

    /// A series with some of its samples.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct TimeSeries {
        /// Positions in the symbols: name and value of each label, sorted by name.
        #[prost(uint32, repeated, tag = "1")]
        pub labels_refs: Vec<u32>,
        /// Samples in order of time.
        #[prost(message, repeated, tag = "2")]
        pub samples: Vec<Sample>,
    }

    /// A sample.
    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub struct Sample {
        /// The value. A NaN with the bits `0x7ff0000000000002` ends the series.
        #[prost(double, tag = "1")]
        pub value: f64,
        /// Milliseconds since 1970.
        #[prost(int64, tag = "2")]
        pub timestamp: i64,
        /// Milliseconds since 1970 at which a counter began; 0 if unknown.
        #[prost(int64, tag = "3")]
        pub start_timestamp: i64,
    }
}

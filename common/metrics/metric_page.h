// The figures of one scrape: rows of the metric table with label values. Values with the same
// labels add up, so jobs beyond the limit share one series. One thread at a time.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/metrics/histogram.h"
#include "common/metrics/metric_table.h"

namespace gradbus {

using MetricLabels = std::vector<std::string>;  // values, in the order of the row's labels

// Label of jobs or peers beyond the limit.
inline constexpr const char* kOtherLabel = "other";
inline constexpr size_t kJobsLabelledMax = 64;

class MetricPage {
 public:
  void add(Metric metric, double value) { add(metric, {}, value); }
  void add(Metric metric, const MetricLabels& labels, double value);
  // Durations are in nanoseconds, as in the histogram.
  void add(Metric metric, const MetricLabels& labels, const HistogramSample& sample);
  // Adds all rows of another page.
  void merge(const MetricPage& other);
  // Only what never goes down: for a job that has ended.
  void drop_gauges();

  // Prometheus text format 0.0.4.
  std::string text() const;

 private:
  struct Value {
    double number = 0;
    HistogramSample histogram;
  };
  std::map<Metric, std::map<MetricLabels, Value>> rows_;
};

}  // namespace gradbus

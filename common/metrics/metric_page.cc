#include "common/metrics/metric_page.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <sstream>

#include "common/check.h"
#include "common/utf8.h"

namespace gradbus {
namespace {

constexpr size_t kLabelBytesMax = 128;

std::vector<std::string> split_labels(std::string_view names) {
  std::vector<std::string> split;
  while (!names.empty()) {
    const size_t comma = names.find(", ");
    split.emplace_back(names.substr(0, comma));
    names = comma == std::string_view::npos ? std::string_view() : names.substr(comma + 2);
  }
  return split;
}

// Names of jobs and nodes came from other processes. Prometheus refuses a page that is not UTF-8.
std::string clean_label(const std::string& value) {
  std::string clean = value.substr(0, kLabelBytesMax);
  const bool readable = is_utf8(clean);
  for (char& c : clean) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f || (byte >= 0x80 && !readable)) c = '?';
  }
  return clean;
}

// Cleaned before they are compared: two series of one page never have the same labels.
MetricLabels clean_labels(const MetricLabels& labels) {
  MetricLabels clean;
  for (const std::string& label : labels) clean.push_back(clean_label(label));
  return clean;
}

prometheus::MetricType type_of(MetricType type) {
  switch (type) {
    case MetricType::kCounter: return prometheus::MetricType::Counter;
    case MetricType::kGauge: return prometheus::MetricType::Gauge;
    case MetricType::kDurations:
    case MetricType::kSteps:
    case MetricType::kDepths: return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

template <typename Bounds>
prometheus::ClientMetric::Histogram histogram_of(const HistogramSample& sample,
                                                 const Bounds& bounds, double unit) {
  prometheus::ClientMetric::Histogram shown;
  uint64_t below = 0;
  for (size_t i = 0; i < bounds.size(); ++i) {
    below += sample.counts[i];
    shown.bucket.push_back({below, static_cast<double>(bounds[i]) * unit});
  }
  shown.sample_count = below + sample.counts[bounds.size()];
  shown.sample_sum = static_cast<double>(sample.sum) * unit;
  return shown;
}

}  // namespace

void MetricPage::add(Metric metric, const MetricLabels& labels, double value) {
  rows_[metric][clean_labels(labels)].number += value;
}

void MetricPage::add(Metric metric, const MetricLabels& labels, const HistogramSample& sample) {
  HistogramSample& sum = rows_[metric][clean_labels(labels)].histogram;
  for (size_t i = 0; i < sum.counts.size(); ++i) sum.counts[i] += sample.counts[i];
  sum.sum += sample.sum;
}

void MetricPage::merge(const MetricPage& other) {
  for (const auto& [metric, values] : other.rows_) {
    for (const auto& [labels, value] : values) {
      add(metric, labels, value.number);
      add(metric, labels, value.histogram);
    }
  }
}

void MetricPage::drop_gauges() {
  std::erase_if(rows_,
                [](const auto& row) { return metric_info(row.first).type == MetricType::kGauge; });
}

std::string MetricPage::text() const {
  std::vector<prometheus::MetricFamily> families;
  for (const auto& [metric, values] : rows_) {
    const MetricInfo& info = metric_info(metric);
    const std::vector<std::string> names = split_labels(info.labels);
    prometheus::MetricFamily family;
    family.name = info.name;
    family.help = info.help;
    family.type = type_of(info.type);
    for (const auto& [labels, value] : values) {
      GRADBUS_CHECK(labels.size() == names.size());
      prometheus::ClientMetric& shown = family.metric.emplace_back();
      for (size_t i = 0; i < names.size(); ++i) shown.label.push_back({names[i], labels[i]});
      shown.counter.value = shown.gauge.value = value.number;
      if (info.type == MetricType::kDurations)
        shown.histogram = histogram_of(value.histogram, kDurationBounds, 1e-9);
      if (info.type == MetricType::kSteps)
        shown.histogram = histogram_of(value.histogram, kStepBounds, 1);
      if (info.type == MetricType::kDepths)
        shown.histogram = histogram_of(value.histogram, kDepthBounds, 1);
    }
    families.push_back(std::move(family));
  }
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, families);
  return out.str();
}

}  // namespace gradbus

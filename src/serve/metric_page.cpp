// SPDX-License-Identifier: Apache-2.0
#include <cohort/core/assert.hpp>
#include <cohort/serve/metric_page.hpp>

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "log.hpp"

namespace cohort::serve {
namespace {

template <class Metric>
auto build() {
  if constexpr (std::is_same_v<Metric, prometheus::Counter>) return prometheus::BuildCounter();
  if constexpr (std::is_same_v<Metric, prometheus::Gauge>) return prometheus::BuildGauge();
  if constexpr (std::is_same_v<Metric, prometheus::Histogram>) return prometheus::BuildHistogram();
}

template <class Metric>
prometheus::Family<Metric>& family(prometheus::Registry& registry, const metric_spec& spec) {
  return build<Metric>().Name(spec.name).Help(spec.help).Register(registry);
}

void raise(prometheus::Counter& c, double total) { c.Increment(total - c.Value()); }

}  // namespace

metric_page::metric_page()
    : registry_{std::make_unique<prometheus::Registry>()},
      log_dropped_{
          &family<prometheus::Counter>(*registry_, {.name = "cohort_log_lines_dropped_total",
                                                    .help = "Log lines not written, by reason",
                                                    .label = "reason"})} {}
metric_page::~metric_page() = default;

void metric_page::add_owner(counted_by by, std::size_t index, const std::string& name) {
  for (owner_listener* row : rows_) row->add_owner(by, index, name);
}

void metric_page::expect_owners(counted_by by, std::size_t most) {
  for (owner_listener* row : rows_) row->expect_owners(by, most);
}

std::string metric_page::text() const {
  const std::lock_guard lock{mutex_};  // Two readers must not both add what is new.
  const dropped_lines d = log_lines_dropped();
  const std::pair<const char*, std::uint64_t> all[] = {
      {"repeated", d.repeated}, {"no_room", d.no_room}, {"unwritable", d.unwritable}};
  for (const auto& [reason, n] : all) {
    raise(log_dropped_->Add({{"reason", reason}}), static_cast<double>(n));
  }
  return prometheus::TextSerializer{}.Serialize(registry_->Collect());
}

template <class Metric>
metric_row<Metric>::metric_row(metric_page& page, metric_spec spec)
    : spec_{std::move(spec)}, family_{&family<Metric>(*page.registry_, spec_)} {
  page.rows_.push_back(this);
  metric_row::add_owner(counted_by::server, 0, "");
}

template <class Metric>
void metric_row<Metric>::add_owner(counted_by by, std::size_t index, const std::string& name) {
  if (by != spec_.by) return;
  prometheus::Labels labels;
  if (by == counted_by::device) labels.emplace("device", name);
  if (by == counted_by::model || by == counted_by::pipeline) labels.emplace("model", name);
  const std::size_t values = std::max<std::size_t>(1, spec_.values.size());
  if (series_.size() < (index + 1) * values) series_.resize((index + 1) * values);
  for (std::size_t i = 0; i < values; ++i) {
    if (spec_.label != nullptr) labels[spec_.label] = std::string{spec_.values[i]};
    Metric*& one = series_[index * values + i];
    if constexpr (std::is_same_v<Metric, prometheus::Histogram>) {
      one = &family_->Add(labels, prometheus::Histogram::BucketBoundaries(spec_.buckets.begin(),
                                                                          spec_.buckets.end()));
    } else {
      one = &family_->Add(labels);
    }
  }
}

template <class Metric>
void metric_row<Metric>::expect_owners(counted_by by, std::size_t most) {
  if (by == spec_.by) series_.resize(most * std::max<std::size_t>(1, spec_.values.size()));
}

template <class Metric>
Metric& metric_row<Metric>::at(std::size_t owner, std::size_t value) const {
  const std::size_t i = owner * std::max<std::size_t>(1, spec_.values.size()) + value;
  COHORT_ASSERT(i < series_.size() && series_[i] != nullptr);
  return *series_[i];
}

template class metric_row<prometheus::Counter>;
template class metric_row<prometheus::Gauge>;
template class metric_row<prometheus::Histogram>;

void counter::add(double n, std::size_t owner, std::size_t value) const {
  at(owner, value).Increment(n);
}
void counter::raise_to(double total, std::size_t owner, std::size_t value) const {
  raise(at(owner, value), total);
}
void gauge::set(double x, std::size_t owner) const { at(owner, 0).Set(x); }
void histogram::observe(double x, std::size_t owner) const { at(owner, 0).Observe(x); }

text_counter::text_counter(metric_page& page, const metric_spec& spec)
    : label_{spec.label}, family_{&family<prometheus::Counter>(*page.registry_, spec)} {}
void text_counter::add(const std::string& text) const {
  family_->Add({{label_, text}}).Increment();
}

changing_gauge::changing_gauge(metric_page& page, const metric_spec& spec)
    : family_{&family<prometheus::Gauge>(*page.registry_, spec)} {}
void changing_gauge::set(const metric_labels& labels, double x) const {
  family_->Add(labels).Set(x);
}
void changing_gauge::remove(const metric_labels& labels) const {
  family_->Remove(&family_->Add(labels));
}

}  // namespace cohort::serve

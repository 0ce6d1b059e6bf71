// SPDX-License-Identifier: Apache-2.0
#include <cohort/core/assert.hpp>
#include <cohort/core/version.hpp>
#include <cohort/serve/metric_page.hpp>

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "log.hpp"
#include "process_facts.hpp"

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

/// `process_...` have the names and meanings common to Prometheus clients.
struct metric_page::process_rows {
  explicit process_rows(prometheus::Registry& r) : registry{r} {
    family<prometheus::Gauge>(
        r, {.name = "cohort_build_info", .help = "Version and compiler, as labels; always 1"})
        .Add({{"version", version_string}, {"compiler", compiler}})
        .Set(1);
  }
  template <class Metric>
  Metric& of(const char* name, const char* help) {
    return family<Metric>(registry, {.name = name, .help = help}).Add({});
  }
  void update() {
    const dropped_lines d = log_lines_dropped();
    const std::pair<const char*, std::uint64_t> all[] = {
        {"repeated", d.repeated}, {"no_room", d.no_room}, {"unwritable", d.unwritable}};
    for (const auto& [reason, n] : all) {
      raise(log_dropped.Add({{"reason", reason}}), static_cast<double>(n));
    }
    const process_facts now = facts_of_process();
    raise(cpu, now.cpu_seconds);
    start.Set(now.start_seconds);
    resident.Set(static_cast<double>(now.resident_bytes));
    address_space.Set(static_cast<double>(now.virtual_bytes));
    open_files.Set(static_cast<double>(now.open_descriptors));
    most_files.Set(static_cast<double>(now.most_descriptors));
  }

#ifdef __clang__
  static constexpr const char* compiler = "Clang " __clang_version__;
#else
  static constexpr const char* compiler = "GCC " __VERSION__;
#endif
  prometheus::Registry& registry;
  prometheus::Family<prometheus::Counter>& log_dropped{family<prometheus::Counter>(
      registry,
      {.name = "cohort_log_lines_dropped_total", .help = "Log lines not written, by reason"})};
  prometheus::Counter& cpu{of<prometheus::Counter>("process_cpu_seconds_total",
                                                   "User and system CPU time of the process")};
  prometheus::Gauge& start{of<prometheus::Gauge>("process_start_time_seconds",
                                                 "Start of the process, since the Unix epoch")};
  prometheus::Gauge& resident{of<prometheus::Gauge>("process_resident_memory_bytes",
                                                    "Memory of the process that is in RAM")};
  prometheus::Gauge& address_space{
      of<prometheus::Gauge>("process_virtual_memory_bytes", "Address space of the process")};
  prometheus::Gauge& open_files{
      of<prometheus::Gauge>("process_open_fds", "Open file descriptors of the process")};
  prometheus::Gauge& most_files{
      of<prometheus::Gauge>("process_max_fds", "Limit of open file descriptors")};
};

struct metric_page::passing {
  struct place {
    std::string name;  // Empty: free.
    std::weak_ptr<const metric_owner> owner;
    std::uint64_t serial = 0;  // Serial of its latest owner.
  };
  std::map<counted_by, std::vector<place>> places;  // By kind and index.
};

metric_page::metric_page()
    : registry_{std::make_unique<prometheus::Registry>()},
      process_{std::make_unique<process_rows>(*registry_)},
      passing_{std::make_unique<passing>()} {}
metric_page::~metric_page() = default;

void metric_page::add_owner(counted_by by, std::size_t index, const std::string& name) {
  for (owner_listener* row : rows_) row->add_owner(by, index, name);
}

void metric_page::expect_owners(counted_by by, std::size_t most) {
  passing_->places[by].resize(most);
  for (owner_listener* row : rows_) row->expect_owners(by, most);
}

std::shared_ptr<const metric_owner> metric_page::find_owner(counted_by by,
                                                            const std::string& name) {
  std::shared_ptr<const metric_owner> found;  // Perhaps the last copy: must die unlocked.
  const std::lock_guard lock{mutex_};
  std::vector<passing::place>& places = passing_->places[by];
  auto at = std::ranges::find(places, name, &passing::place::name);
  const bool is_there = at != places.end();
  if (!is_there) at = std::ranges::find(places, "", &passing::place::name);
  if (at == places.end()) return nullptr;
  found = at->owner.lock();
  if (found) return found;
  const auto index = static_cast<std::size_t>(at - places.begin());
  // An existing owner is being removed; this one takes over its series.
  found = std::make_shared<const metric_owner>(*this, by, index, at->serial + 1);
  if (!is_there) add_owner(by, index, name);
  *at = {.name = name, .owner = found, .serial = at->serial + 1};
  return found;
}

void metric_page::remove_owner(const metric_owner& o) noexcept {
  const std::lock_guard lock{mutex_};
  passing::place& at = passing_->places[o.by_][o.index_];
  if (at.serial != o.serial_) return;
  at.name.clear();
  for (owner_listener* row : rows_) row->remove_owner(o.by_, o.index_);
}

std::string metric_page::text() const {
  const std::lock_guard lock{mutex_};  // Two readers must not both add the increase.
  process_->update();
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
  if (by == counted_by::version) {
    const std::size_t slash = name.rfind('/');
    labels = {{"model", name.substr(0, slash)}, {"version", name.substr(slash + 1)}};
  }
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
void metric_row<Metric>::remove_owner(counted_by by, std::size_t index) {
  if (by != spec_.by) return;
  const std::size_t values = std::max<std::size_t>(1, spec_.values.size());
  for (std::size_t i = index * values; i < (index + 1) * values; ++i) {
    family_->Remove(std::exchange(series_[i], nullptr));
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
void changing_gauge::show(const metric_values& all) {
  const std::set<metric_labels> before = std::exchange(shown_, {});
  for (const auto& [labels, x] : all) {
    set(labels, x);
    shown_.insert(labels);
  }
  for (const metric_labels& labels : before) {
    if (!shown_.contains(labels)) remove(labels);
  }
}

}  // namespace cohort::serve

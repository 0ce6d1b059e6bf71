// SPDX-License-Identifier: Apache-2.0
/// @file
/// Metrics in the Prometheus text format: a page, and its rows.
#pragma once

#include <cohort/serve/http.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace prometheus {
class Counter;
class Gauge;
class Histogram;
template <class Metric>
class Family;
class Registry;
}  // namespace prometheus

namespace cohort::serve {

/// The kind of owner for which a row has one series each.
enum class counted_by : unsigned char {
  server,    ///< One in total.
  model,     ///< Label `model`.
  version,   ///< Labels `model` and `version`, of owners named MODEL/VERSION.
  pipeline,  ///< Label `model`, for models that run as pipelines.
  device,    ///< Label `device`.
};

/// A row's name, help and labels.
struct metric_spec {
  const char* name;
  const char* help;
  counted_by by = counted_by::server;
  const char* label = nullptr;             ///< A further label; `values` are all its values.
  std::vector<std::string_view> values{};  ///< None without it.
  std::vector<double> buckets{};           ///< Upper bounds, ascending; of histograms.
};

class metric_owner;

/// The rows of one server, and those of every process: `cohort_build_info`, `process_...` and
/// `cohort_log_lines_dropped_total`. The rows are members and register themselves. Thread safety:
/// first add rows and permanent owners, and state how many more are expected; then any thread.
class metric_page {
 public:
  metric_page();
  metric_page(const metric_page&) = delete;
  metric_page& operator=(const metric_page&) = delete;

  /// Adds a model, pipeline or device to all rows of that kind. Each index once.
  void add_owner(counted_by by, std::size_t index, const std::string& name);
  /// Indices of such owners will be below `most`; they may then be added while others are counted.
  void expect_owners(counted_by by, std::size_t most);
  /// Finds or adds an owner that can be removed: its series leave the page with the last copy of
  /// the result. While there is a copy, the same name is the same owner. The page must outlive them
  /// all.
  /// @returns Null if all expected indices are in use.
  [[nodiscard]] std::shared_ptr<const metric_owner> find_owner(counted_by by,
                                                               const std::string& name);
  /// The text of GET /metrics.
  [[nodiscard]] std::string text() const;

 protected:
  ~metric_page();

 private:
  template <class Metric>
  friend class metric_row;
  friend class text_counter;
  friend class changing_gauge;
  class owner_listener {
   public:
    virtual void add_owner(counted_by by, std::size_t index, const std::string& name) = 0;
    virtual void remove_owner(counted_by by, std::size_t index) = 0;
    virtual void expect_owners(counted_by by, std::size_t most) = 0;

   protected:
    ~owner_listener() = default;
  };
  friend class metric_owner;
  struct process_rows;  // Values read with the page.
  struct passing;       // Owners that can be removed.

  void remove_owner(const metric_owner& o) noexcept;

  mutable std::mutex mutex_;
  std::unique_ptr<prometheus::Registry> registry_;
  std::unique_ptr<process_rows> process_;
  std::vector<owner_listener*> rows_;
  std::unique_ptr<passing> passing_;
};

/// An owner with series on the page while this exists: hold it where it is counted.
class metric_owner {
 public:
  metric_owner(metric_page& page, counted_by by, std::size_t index, std::uint64_t serial)
      : page_{page}, by_{by}, index_{index}, serial_{serial} {}
  metric_owner(const metric_owner&) = delete;
  metric_owner& operator=(const metric_owner&) = delete;
  ~metric_owner() { page_.remove_owner(*this); }

  /// Its index in the rows. Later owners may reuse it.
  [[nodiscard]] std::size_t index() const noexcept { return index_; }
  /// Never reused by another owner; above 0.
  [[nodiscard]] std::uint64_t serial() const noexcept { return serial_; }

 private:
  friend class metric_page;
  metric_page& page_;
  counted_by by_;
  std::size_t index_;
  std::uint64_t serial_;
};

/// A row: its series by owner and value of the further label. Belongs to its page.
template <class Metric>
class metric_row : metric_page::owner_listener {
 public:
  metric_row(metric_page& page, metric_spec spec);
  metric_row(const metric_row&) = delete;
  metric_row& operator=(const metric_row&) = delete;

 protected:
  ~metric_row() = default;
  /// @param owner, value Their indices; 0 if there is only one.
  [[nodiscard]] Metric& at(std::size_t owner, std::size_t value) const;

 private:
  void add_owner(counted_by by, std::size_t index, const std::string& name) override;
  void remove_owner(counted_by by, std::size_t index) override;
  void expect_owners(counted_by by, std::size_t most) override;
  metric_spec spec_;
  prometheus::Family<Metric>* family_;
  std::vector<Metric*> series_;
};

/// A total that only increases.
class counter : public metric_row<prometheus::Counter> {
 public:
  using metric_row::metric_row;
  void add(double n = 1, std::size_t owner = 0, std::size_t value = 0) const;
  /// Raises it to a total counted elsewhere.
  void raise_to(double total, std::size_t owner = 0, std::size_t value = 0) const;
};

/// A present value.
class gauge : public metric_row<prometheus::Gauge> {
 public:
  using metric_row::metric_row;
  void set(double x, std::size_t owner = 0) const;
};

/// Counts of values by `buckets`.
class histogram : public metric_row<prometheus::Histogram> {
 public:
  using metric_row::metric_row;
  void observe(double x, std::size_t owner = 0) const;
};

/// A counter by texts known only when they occur, such as HTTP statuses, under `label`.
class text_counter {
 public:
  text_counter(metric_page& page, const metric_spec& spec);
  void add(const std::string& text) const;

 private:
  const char* label_;
  prometheus::Family<prometheus::Counter>* family_;
};

/// Common to all servers: requests in progress, and those refused at a limit, by the limit.
class http_counters {
 public:
  explicit http_counters(metric_page& page)
      : count_{page,
               {.name = "cohort_http_refused_total",
                .help = "Connections and requests refused at a limit, by the limit",
                .label = "reason",
                .values = {"connections", "bodies", "memory"}}},
        in_flight_{page,
                   {.name = "cohort_http_requests_in_flight",
                    .help = "HTTP requests whose answer is being made or sent"}},
        held_{page,
              {.name = "cohort_held_bytes",
               .help = "Bytes held or reserved for bodies and answers of requests"}},
        most_{page,
              {.name = "cohort_held_bytes_limit",
               .help = "Limit of cohort_held_bytes; requests beyond it are answered 429 or 413"}} {}
  /// Updates the requests in progress, the held memory and its limit.
  void show(http_server& http) const {
    in_flight_.set(static_cast<double>(http.under_way()));
    held_.set(static_cast<double>(http.memory().held()));
    most_.set(static_cast<double>(http.memory().limit()));
  }
  void add(http_bound full) const { count_.add(1, 0, static_cast<std::size_t>(full)); }

 private:
  counter count_;
  gauge in_flight_;
  gauge held_;
  gauge most_;
};

using metric_labels = std::map<std::string, std::string>;

using metric_values = std::vector<std::pair<metric_labels, double>>;

/// A gauge with labels that change while the server runs. One thread at a time changes it; others
/// may read the page meanwhile.
class changing_gauge {
 public:
  changing_gauge(metric_page& page, const metric_spec& spec);
  void set(const metric_labels& labels, double x) const;
  void remove(const metric_labels& labels) const;
  /// Sets these, and removes the previous ones that are not among them.
  void show(const metric_values& all);

 private:
  prometheus::Family<prometheus::Gauge>* family_;
  std::set<metric_labels> shown_;
};

}  // namespace cohort::serve

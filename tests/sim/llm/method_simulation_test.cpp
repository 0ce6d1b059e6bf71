// SPDX-License-Identifier: Apache-2.0
#include <cohort/sim/llm/method_simulation.hpp>

#include <doctest/doctest.h>

#include <cohort/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include <support/random_source.hpp>

namespace cohort::sim::method_simulation_test {
namespace {
using namespace std::chrono_literals;

/// The counts again, from masks written out column by column: slow, and sharing nothing with the
/// batch under test.
class oracle {
 public:
  oracle(const std::vector<decode_request>& requests, const decode_options& o)
      : requests_{requests}, o_{o}, rows_(o.batch) {}

  decode_result run() {
    for (const decode_request& r : requests_) out_.useful_tokens += r.output;
    out_.finish.resize(requests_.size());
    out_.first_token.resize(requests_.size());
    todo_.resize(requests_.size());
    for (std::size_t i = 0; i < todo_.size(); ++i) todo_[i] = requests_[i].output;
    waits_.assign(requests_.size(), true);
    const bool decoupled = o_.method == decode_method::pd || o_.method == decode_method::baton;
    if (decoupled) {
      std::vector<std::uint32_t> lengths;
      for (const decode_request& r : requests_) lengths.push_back(r.prompt);
      std::sort(lengths.begin(), lengths.end());
      for (std::size_t i = 0; i < lengths.size(); ++i) {
        const std::size_t last = std::min(lengths.size(), (i / o_.batch + 1) * o_.batch) - 1;
        out_.padding_tokens += lengths[last] - lengths[i];
      }
      for (std::size_t i = 0; i < todo_.size(); ++i) {
        --todo_[i];
        out_.first_token[i] = requests_[i].arrival;
        if (todo_[i] == 0) out_.finish[i] = requests_[i].arrival;
        if (todo_[i] == 0 && o_.method == decode_method::baton) waits_[i] = false;
      }
    }
    while (std::any_of(waits_.begin(), waits_.end(), [](bool w) { return w; }) || occupied() > 0) {
      if (occupied() == 0 && waiting().empty()) {
        time_point next = never;
        for (std::size_t i = 0; i < waits_.size(); ++i) {
          if (waits_[i]) next = std::min(next, requests_[i].arrival);
        }
        now_ = next;
      }
      iterate();
    }
    out_.kv_read_waste =
        read_ == 0 ? 0 : 1 - static_cast<double>(own_) / static_cast<double>(read_);
    return out_;
  }

 private:
  struct row {
    int request = -1;
    std::vector<bool> mask;  // One flag for each column ever written.
  };

  std::uint32_t occupied() const {
    std::uint32_t n = 0;
    for (const row& r : rows_) n += r.request >= 0 ? 1U : 0U;
    return n;
  }
  std::vector<int> waiting() const {
    std::vector<int> w;
    for (std::size_t i = 0; i < waits_.size(); ++i) {
      if (waits_[i] && requests_[i].arrival <= now_) w.push_back(static_cast<int>(i));
    }
    return w;
  }
  std::uint32_t prompt(int request) const {
    return requests_[static_cast<std::size_t>(request)].prompt;
  }
  std::uint64_t length() const {
    std::uint64_t longest = 0;
    for (const row& r : rows_) {
      if (r.request < 0) continue;
      const auto first = std::find(r.mask.begin(), r.mask.end(), true);
      longest = std::max(longest, static_cast<std::uint64_t>(r.mask.end() - first));
    }
    return longest;
  }
  static std::uint64_t own(const row& r) {
    return static_cast<std::uint64_t>(std::count(r.mask.begin(), r.mask.end(), true));
  }
  void need(std::uint64_t columns, std::uint64_t moved) {
    if (columns <= capacity_) return;
    while (capacity_ < columns) capacity_ *= 2;
    out_.columns_moved += moved;
  }
  /// Puts `m` columns of a request against the end.
  void embed(row& r, int request) {
    const std::uint32_t m = prompt(request);
    need(std::max<std::uint64_t>(length(), m), length());
    while (total_ < m) {  // The origin of columns does not matter.
      for (row& other : rows_) other.mask.insert(other.mask.begin(), false);
      ++total_;
    }
    r.request = request;
    r.mask.assign(total_, false);
    std::fill(r.mask.end() - m, r.mask.end(), true);
    out_.columns_written += m;
  }
  void append(std::uint32_t n) {
    need(length() + n, length());
    total_ += n;
    for (row& r : rows_) {
      r.mask.resize(total_, false);
      if (r.request >= 0) r.mask.back() = true;
    }
    out_.columns_written += n;
  }
  int choose(const std::vector<int>& w, std::uint64_t longest) const {
    if (o_.pick == decode_pick::fifo) return w.front();
    int best = -1;
    for (const int i : w) {
      if (o_.pick == decode_pick::priority) {
        if (best < 0 || requests_[static_cast<std::size_t>(i)].priority <
                            requests_[static_cast<std::size_t>(best)].priority)
          best = i;
      } else if (prompt(i) <= longest && (best < 0 || prompt(i) > prompt(best))) {
        best = i;
      }
    }
    if (best >= 0) return best;
    return *std::min_element(w.begin(), w.end(),
                             [&](int a, int b) { return prompt(a) < prompt(b); });
  }

  void iterate() {
    const bool grouped =
        o_.method == decode_method::run_to_completion || o_.method == decode_method::pd;
    const bool embeds = o_.method == decode_method::pd || o_.method == decode_method::baton;
    const std::uint32_t old = occupied();
    std::vector<int> entering;
    std::uint64_t longest = length();
    if (!grouped || old == 0) {
      for (row& r : rows_) {
        const std::vector<int> w = waiting();
        if (r.request >= 0 || w.empty()) continue;
        const int i = grouped ? w.front() : choose(w, longest);
        waits_[static_cast<std::size_t>(i)] = false;
        entering.push_back(i);
        if (o_.method == decode_method::baton && prompt(i) > longest) ++out_.grows;
        if (embeds) {
          embed(r, i);
        } else {
          r.request = i;
          r.mask.assign(total_, false);
        }
        longest = std::max<std::uint64_t>(longest, prompt(i));
      }
      if (!grouped) out_.inserts += entering.size();
    }
    const std::uint32_t g = occupied();
    const std::uint32_t rows = grouped ? g : o_.batch;
    if (o_.method == decode_method::pd) {
      // A group of nothing but single tokens runs no iteration, and leaves.
      out_.peak_columns = std::max(out_.peak_columns, rows * length());
      if (unfinished() == 0) {
        for (row& r : rows_) r.request = -1;
        return;
      }
    }
    const bool prompts = !embeds && !entering.empty();
    const std::uint32_t empty = o_.batch - g;
    if (!waiting().empty()) {
      out_.starved += empty;
    } else if (!grouped) {
      out_.drain += empty;
    }
    for (const row& r : rows_) {
      if (r.request < 0) continue;
      const bool done = todo_[static_cast<std::size_t>(r.request)] == 0;
      if (done) ++out_.held;
      if (prompts) continue;
      if (!done) own_ += own(r);
      if (o_.method == decode_method::orca || o_.ragged) read_ += done ? 0 : own(r);
    }
    if (!prompts && !(o_.method == decode_method::orca || o_.ragged)) read_ += rows * length();

    ++out_.iterations;
    if (!prompts) {
      append(1);
    } else {
      std::uint32_t n = 0;
      std::uint64_t sum = 0;
      for (const int i : entering) {
        n = std::max(n, prompt(i));
        sum += prompt(i);
      }
      std::vector<int> requests;
      for (row& r : rows_) {  // New rows have no columns yet.
        const bool is_new = r.request >= 0 && std::find(entering.begin(), entering.end(),
                                                        r.request) != entering.end();
        requests.push_back(is_new ? r.request : -1);
        if (is_new) r.request = -1;
      }
      if (o_.method == decode_method::orca) {
        append(1);
        for (std::size_t i = 0; i < rows_.size(); ++i) {
          if (requests[i] >= 0) embed(rows_[i], requests[i]);
        }
      } else {
        out_.padding_tokens += std::uint64_t{rows} * n - sum - old;
        append(n);
        for (std::size_t i = 0; i < rows_.size(); ++i) {
          if (requests[i] < 0) continue;
          rows_[i].request = requests[i];
          std::fill(rows_[i].mask.end() - prompt(requests[i]), rows_[i].mask.end(), true);
        }
      }
    }
    if (o_.method == decode_method::orca) {
      std::uint64_t sum = 0;
      for (const row& r : rows_) sum += r.request >= 0 ? own(r) : 0;
      out_.peak_columns = std::max(out_.peak_columns, sum);
    } else {
      out_.peak_columns = std::max(out_.peak_columns, rows * length());
    }
    now_ += 1ms;
    for (row& r : rows_) {
      if (r.request < 0) continue;
      const auto i = static_cast<std::size_t>(r.request);
      if (todo_[i] > 0) {
        if (todo_[i] == requests_[i].output) out_.first_token[i] = now_;
        if (--todo_[i] == 0) out_.finish[i] = now_;
      }
      if (!grouped && todo_[i] == 0) r.request = -1;
    }
    if (grouped && unfinished() == 0) {
      for (row& r : rows_) r.request = -1;
    }
  }
  std::uint32_t unfinished() const {
    std::uint32_t n = 0;
    for (const row& r : rows_) {
      n += r.request >= 0 && todo_[static_cast<std::size_t>(r.request)] > 0 ? 1U : 0U;
    }
    return n;
  }

  const std::vector<decode_request>& requests_;
  decode_options o_;
  std::vector<row> rows_;
  std::vector<bool> waits_;
  std::vector<std::uint32_t> todo_;
  decode_result out_;
  time_point now_{};
  std::size_t total_ = 0;
  std::uint64_t capacity_ = 64;
  std::uint64_t read_ = 0;
  std::uint64_t own_ = 0;
};

const std::vector<decode_request> example = {{5, 3}, {2, 6}, {7, 1}, {3, 4}, {6, 2}, {4, 5}};

struct expected {
  decode_method method;
  std::uint64_t iterations, held, drain, padding, inserts, grows, peak;
  double waste;
};
constexpr expected table[] = {
    {decode_method::run_to_completion, 15, 9, 0, 9, 0, 0, 20, 0.6011},
    {decode_method::pd, 12, 9, 0, 3, 0, 0, 20, 0.6011},
    {decode_method::shaping, 13, 0, 5, 20, 6, 0, 30, 0.4912},
    {decode_method::orca, 13, 0, 5, 0, 6, 0, 13, 0},
    {decode_method::baton, 9, 0, 3, 3, 5, 2, 16, 0.29},
};

void check_row(const decode_result& r, const expected& e) {
  CAPTURE(std::string{to_string(e.method)});
  CHECK(r.iterations == e.iterations);
  CHECK(r.useful_tokens == 21);
  CHECK(r.held == e.held);
  CHECK(r.starved == 0);
  CHECK(r.drain == e.drain);
  CHECK(r.padding_tokens == e.padding);
  CHECK(r.inserts == e.inserts);
  CHECK(r.grows == e.grows);
  CHECK(r.peak_columns == e.peak);
  CHECK(std::round(r.kv_read_waste * 1e4) / 1e4 == e.waste);
}

TEST_CASE("the worked example of six requests on two slots") {
  for (const expected& e : table) {
    const decode_options o{.method = e.method, .batch = 2};
    check_row(method_simulation{example, o}.run(), e);
    check_row(oracle{example, o}.run(), e);
  }
}

TEST_CASE("finish times of the worked example, by hand") {
  // Slots of baton: (5,3) 2 iterations; (2,6) 5; (7,1) none; (3,4) from 2, 3; (6,2) from 5, 1;
  // (4,5) from 5, 4.
  const decode_result r = method_simulation{example, {.batch = 2, .record_stays = true}}.run();
  const duration finish[] = {2ms, 5ms, 0ms, 5ms, 6ms, 9ms};
  for (std::size_t i = 0; i < 6; ++i) CHECK(r.finish[i] == time_point{} + finish[i]);
  CHECK(r.seconds == 0.009);
  REQUIRE(r.stays.size() == 5);
  CHECK(r.stays[0].slot == 0);
  CHECK(r.stays[0].request == 0);
  CHECK(r.stays[0].to == time_point{} + 2ms);
  // 2 + 5 + 3 + 1 + 4 tokens after the first; 12 gaps of 1 ms, then 3 ms, 6 ms and 6 ms.
  CHECK(r.between_tokens_p50_ms == 1);
  CHECK(r.between_tokens_p99_ms == 6);
}

void check_equal(const decode_result& a, const decode_result& b) {
  REQUIRE(a.iterations == b.iterations);
  REQUIRE(a.useful_tokens == b.useful_tokens);
  REQUIRE(a.held == b.held);
  REQUIRE(a.starved == b.starved);
  REQUIRE(a.drain == b.drain);
  REQUIRE(a.padding_tokens == b.padding_tokens);
  REQUIRE(a.inserts == b.inserts);
  REQUIRE(a.grows == b.grows);
  REQUIRE(a.peak_columns == b.peak_columns);
  REQUIRE(a.kv_read_waste == doctest::Approx(b.kv_read_waste).epsilon(1e-12));
  REQUIRE(a.columns_moved == b.columns_moved);
  REQUIRE(a.columns_written == b.columns_written);
  REQUIRE(a.finish == b.finish);
  REQUIRE(a.first_token == b.first_token);
}

TEST_CASE("counts equal those of an oracle that writes the masks out") {
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    std::vector<decode_request> requests(1 + random.below(24U));
    const std::uint32_t longest = random.one_in(4) ? 200 : 29;
    const bool arrivals = random.one_in(2);
    for (decode_request& r : requests) {
      r = {1 + random.below(longest), 1 + random.below(random.one_in(3) ? 2U : 24U)};
      r.priority = static_cast<std::uint8_t>(random.below(3U));
      if (arrivals) r.arrival += duration{500'000} * random.below(200);
    }
    for (const expected& e : table) {
      CAPTURE(std::string{to_string(e.method)});
      decode_options o{.method = e.method, .batch = 1 + random.below(6U)};
      o.pick = static_cast<decode_pick>(random.below(3));
      o.ragged = random.one_in(3);
      const decode_result r = method_simulation{requests, o}.run();
      check_equal(r, oracle{requests, o}.run());
      REQUIRE(r.columns_moved <= 2 * r.columns_written + decode_first_columns);
      if (e.method == decode_method::baton) {
        REQUIRE(r.starved == 0);
        REQUIRE(r.held == 0);
        std::uint64_t decoded = 0;
        for (const decode_request& q : requests) decoded += q.output - 1;
        REQUIRE(r.iterations * o.batch == decoded + r.drain);  // I5.
      }
    }
  }
}

TEST_CASE("prefill takes its time beside the iterations") {
  // Prompts of 2 and 4 tokens at 1 ms a position, padded to 4: both are ready at 8 ms. One
  // iteration of 10 ms, with two positions: 12 ms.
  const std::vector<decode_request> two = {{2, 2}, {4, 2}};
  const decode_result r =
      method_simulation{two, {.batch = 2, .cost = {.iteration_ms = 10, .per_token_ms = 1}}}.run();
  CHECK(r.first_token[0] == time_point{} + 8ms);
  CHECK(r.finish[0] == time_point{} + 20ms);
  CHECK(r.finish[1] == time_point{} + 20ms);
  // orca: (2 + 4) positions in the first iteration, 2 in the second.
  const decode_result o = method_simulation{two,
                                            {.method = decode_method::orca,
                                             .batch = 2,
                                             .cost = {.iteration_ms = 10, .per_token_ms = 1}}}
                              .run();
  CHECK(o.finish[0] == time_point{} + 28ms);
  // 2 rows over 4 columns, at 1 ms each, dense; own columns alone, 2 + 4, ragged.
  const decode_cost read{.iteration_ms = 1, .per_token_ms = 0, .per_column_ms = 1};
  CHECK(method_simulation{two, {.batch = 2, .cost = read}}.run().seconds == 0.009);
  CHECK(method_simulation{two, {.batch = 2, .ragged = true, .cost = read}}.run().seconds == 0.007);
}

TEST_CASE("a long prompt stalls the others' tokens in orca, not in baton") {
  std::vector<decode_request> requests(3, {4, 50});
  requests.push_back({1000, 2, time_point{} + 20ms});
  const decode_cost cost{.iteration_ms = 1, .per_token_ms = 0.1};
  const decode_result orca =
      method_simulation{requests, {.method = decode_method::orca, .batch = 4, .cost = cost}}.run();
  const decode_result baton = method_simulation{requests, {.batch = 4, .cost = cost}}.run();
  CHECK(orca.between_tokens_p99_ms == doctest::Approx(101.3));  // 1 + 1003 × 0.1.
  CHECK(baton.between_tokens_p99_ms < 2);
}

TEST_CASE("bad requests and options are refused") {
  const std::vector<decode_request> good = {{1, 1}};
  CHECK_THROWS_AS((method_simulation{std::vector<decode_request>{{0, 1}}, {}}), config_error);
  CHECK_THROWS_AS((method_simulation{std::vector<decode_request>{{1, 0}}, {}}), config_error);
  CHECK_THROWS_AS((method_simulation{good, {.batch = 0}}), config_error);
  CHECK_THROWS_AS((method_simulation{good, {.cost = {.iteration_ms = -1}}}), config_error);
  const double infinite = std::numeric_limits<double>::infinity();
  CHECK_THROWS_AS((method_simulation{good, {.cost = {.per_token_ms = infinite}}}), config_error);
  const std::vector<decode_request> slow(3, {1, 1'000'000});
  CHECK_THROWS_AS((method_simulation{slow, {.batch = 1, .cost = {.iteration_ms = 1e6}}}.run()),
                  config_error);
}

}  // namespace
}  // namespace cohort::sim::method_simulation_test

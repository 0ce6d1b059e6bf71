// SPDX-License-Identifier: Apache-2.0
#include "compare.hpp"

#include <cohort/core/error.hpp>
#include <cohort/kv/batch/decode_batch.hpp>
#include <cohort/kv/batch/kv_memory.hpp>
#include <cohort/runtime/host.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <ctime>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <thread>

namespace cohort::llama {
namespace {

using runtime::host_executor;
using sim::decode_method;
using wall_clock = std::chrono::steady_clock;

struct latch : runtime::completion {
  std::atomic<int> state{0};  // 0 idle, 1 under way, 2 done, 3 failed.
};

/// One run. The thread that calls it decides; streams compute.
class contest {
 public:
  contest(const llama& model, const std::vector<timed_request>& requests, const compare_options& o)
      : model_{model},
        c_{model.config()},
        requests_{requests},
        o_{o},
        executor_{{.pool_bytes = pool_bytes(), .queue_depth = 4096}},
        decode_{executor_.make_stream()},
        prefill_{executor_.make_stream()},
        memory_{
            executor_, {.layers = c_.layers, .heads = c_.kv_heads, .head_size = c_.head_size}, 64},
        batch_{{.slots = o.slots}},
        pad_(c_.column_bytes() / sizeof(float)),
        logits_(o.slots * c_.vocabulary) {
    result_.tokens.resize(requests.size());
    result_.first_token_ms.resize(requests.size());
    last_.resize(requests.size());
  }

  compare_result run() {
    start_ = wall_clock::now();
    const std::clock_t cpu = std::clock();
    const bool groups =
        o_.method == decode_method::run_to_completion || o_.method == decode_method::pd;
    while (done_ < requests_.size()) {
      admit();
      if (o_.method == decode_method::pd || o_.method == decode_method::baton) prefill();
      if (batch_.live() == 0 && enterable() == 0) {
        idle();
      } else if (groups) {
        run_group();
      } else {
        turn();
      }
    }
    result_.seconds = now() - requests_.front().arrival_s;
    result_.cpu_seconds = static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC;
    return std::move(result_);
  }

 private:
  struct staged {
    std::size_t request;
    std::uint64_t storage;
  };

  [[nodiscard]] std::size_t pool_bytes() const {
    std::size_t packed = 0;
    std::size_t longest = 0;
    for (const timed_request& r : requests_) {
      longest = std::max(longest, r.prompt.size() + r.output);
      expects(!r.prompt.empty() && r.output >= 1 &&
                  r.prompt.size() + r.output <= model_.config().max_positions,
              "compare: a request does not fit the model");
      packed += r.prompt.size();
    }
    // Shaped windows hold several times the longest sequence, and growth holds two of them.
    return model_.config().column_bytes() * (packed + 64 * o_.slots * longest + 4096) +
           (std::size_t{1} << 20U);
  }
  [[nodiscard]] double now() const {
    return std::chrono::duration<double>(wall_clock::now() - start_).count();
  }
  [[nodiscard]] bool decoupled() const {
    return o_.method == decode_method::pd || o_.method == decode_method::baton;
  }
  [[nodiscard]] std::size_t enterable() const {
    return decoupled() ? staged_.size() : waiting_.size();
  }
  void admit() {
    for (; next_ < requests_.size() && requests_[next_].arrival_s <= now(); ++next_) {
      waiting_.push_back(next_);
    }
  }
  void idle() {
    if (piece_.state.load(std::memory_order_acquire) == 1) {
      piece_.state.wait(1, std::memory_order_acquire);
    } else if (!current_ && waiting_.empty() && next_ < requests_.size()) {
      const auto until = start_ + std::chrono::duration_cast<wall_clock::duration>(
                                      std::chrono::duration<double>(requests_[next_].arrival_s));
      std::this_thread::sleep_until(until);
    }
  }

  void launch(host_executor::stream& s, latch& l, std::span<const token_row> rows,
              llama::scratch& scratch) {
    l.state.store(1, std::memory_order_relaxed);
    l.invoke = [](runtime::completion& c, bool failed) noexcept {
      auto& self = static_cast<latch&>(c);
      self.state.store(failed ? 3 : 2, std::memory_order_release);
      self.state.notify_one();
    };
    executor_.launch(s, [this, rows, &scratch] { model_.forward(rows, scratch); });
    executor_.notify(s, l);
  }
  void compute() {
    latch l;
    launch(decode_, l, rows_, scratch_);
    l.state.wait(1, std::memory_order_acquire);
  }
  void execute() {
    memory_.execute(decode_, plan_);
    plan_.clear();
  }

  void note(std::size_t request, const float* logits) {
    const auto token =
        static_cast<kv::token_id>(std::max_element(logits, logits + c_.vocabulary) - logits);
    const double at = now();
    if (result_.tokens[request].empty()) {
      result_.first_token_ms[request] = (at - requests_[request].arrival_s) * 1e3;
    } else {
      const double gap = (at - last_[request]) * 1e3;
      result_.between_tokens_ms.push_back(gap);
      if (!decoupled() || result_.tokens[request].size() > 1)
        result_.running_gaps_ms.push_back(gap);
    }
    last_[request] = at;
    result_.tokens[request].push_back(token);
    if (result_.tokens[request].size() == requests_[request].output) ++done_;
  }
  [[nodiscard]] bool over(std::size_t request) const {
    return result_.tokens[request].size() >= requests_[request].output;
  }

  /// Prefill apart from the batch: a few pieces of one prompt at a time.
  void prefill() {
    const bool all_first = o_.method == decode_method::pd && !o_.own_prefill_stream;
    do {
      if (piece_.state.load(std::memory_order_acquire) == 1) return;
      if (piece_.state.load(std::memory_order_acquire) >= 2) {
        piece_.state.store(0, std::memory_order_relaxed);
        prefilled_ += piece_rows_.size();
        const timed_request& r = requests_[current_->request];
        if (prefilled_ == r.prompt.size()) {
          note(current_->request, first_logits_.data());
          if (over(current_->request) && o_.method == decode_method::baton) {
            memory_.release(prefill_, current_->storage);
          } else {
            staged_.push_back(*current_);
          }
          current_.reset();
        }
      }
      if (!current_) {
        if (o_.method == decode_method::baton && staged_.size() >= o_.max_prepared) return;
        if (waiting_.empty()) return;
        // In turn: if short ones went first, only long prompts would be left, and slots empty.
        const std::size_t request = waiting_.front();
        waiting_.pop_front();
        current_ =
            staged{request,
                   memory_.allocate(static_cast<std::uint32_t>(requests_[request].prompt.size()))};
        prefilled_ = 0;
        first_logits_.resize(c_.vocabulary);
      }
      const timed_request& r = requests_[current_->request];
      const std::size_t ahead = o_.own_prefill_stream ? o_.prefill_ahead : 1;
      const std::size_t count =
          std::min<std::size_t>(o_.prefill_chunk * ahead, r.prompt.size() - prefilled_);
      piece_rows_.clear();
      piece_runs_.resize(count);
      const kv_ref kv = packed_kv(c_, reinterpret_cast<float*>(memory_.packed(current_->storage)),
                                  r.prompt.size());
      for (std::size_t i = 0; i < count; ++i) {
        const auto p = static_cast<std::uint32_t>(prefilled_ + i);
        piece_runs_[i] = {0, p + 1};
        piece_rows_.push_back(
            {.token = r.prompt[p],
             .position = p,
             .kv = kv,
             .write = p,
             .runs = {&piece_runs_[i], 1},
             .logits = p + 1 == r.prompt.size() ? first_logits_.data() : nullptr});
      }
      const std::span<const token_row> rows{piece_rows_};
      std::size_t last = 0;
      for (; last + o_.prefill_chunk < count; last += o_.prefill_chunk) {
        executor_.launch(prefill_, [this, part = rows.subspan(last, o_.prefill_chunk)] {
          model_.forward(part, piece_scratch_);
        });
      }
      launch(prefill_, piece_, rows.subspan(last), piece_scratch_);
      if (!o_.own_prefill_stream) piece_.state.wait(1, std::memory_order_acquire);
    } while (all_first);
  }
  /// Of pd: in the order of the requests.
  void sort_staged() {
    std::ranges::sort(staged_,
                      [](const staged& a, const staged& b) { return a.request < b.request; });
  }

  kv::prepared describe(std::size_t request) const {
    const auto prompt = static_cast<std::uint32_t>(requests_[request].prompt.size());
    return {.id = request_id{request}, .prompt = prompt};
  }
  void embed(std::uint32_t slot, const staged& s) {
    kv::prepared p = describe(s.request);
    p.storage = s.storage;
    p.length = p.prompt;
    p.produced = 1;
    p.pending = result_.tokens[s.request].back();
    batch_.insert(slot, p, plan_);
    execute();
    memory_.release(decode_, s.storage);
  }
  [[nodiscard]] std::size_t request_in(std::uint32_t slot) const {
    return batch_[slot].who.id.value();
  }

  void add_rows(std::uint32_t slot) {
    const kv::decode_slot& s = batch_[slot];
    const std::size_t begin = runs_.size();
    batch_.for_each_run(slot, [&](kv::column_run r) { runs_.push_back(r); });
    const kv_ref kv =
        packed_kv(c_, reinterpret_cast<float*>(memory_.slot(slot)), memory_.columns());
    float* const out = logits_.data() + slot * c_.vocabulary;
    if (s.who.produced > 0) {
      const kv::column_run last = runs_.back();
      rows_.push_back({.token = s.who.pending,
                       .position = s.who.length - 1,
                       .kv = kv,
                       .write = last.first + last.count - 1,
                       .runs = {runs_.data() + begin, runs_.size() - begin},
                       .logits = out});
      return;
    }
    // Its prompt: a row for each token, over the columns up to its own.
    const std::vector<kv::column_run> whole(runs_.begin() + static_cast<std::ptrdiff_t>(begin),
                                            runs_.end());
    runs_.resize(begin);
    const std::vector<kv::token_id>& prompt = requests_[request_in(slot)].prompt;
    std::uint32_t p = 0;
    for (std::size_t k = 0; k < whole.size(); ++k) {
      for (std::uint32_t i = 0; i < whole[k].count; ++i, ++p) {
        const std::size_t first = runs_.size();
        for (std::size_t j = 0; j < k; ++j) runs_.push_back(whole[j]);
        runs_.push_back({whole[k].first, i + 1});
        rows_.push_back({.token = prompt[p],
                         .position = p,
                         .kv = kv,
                         .write = whole[k].first + i,
                         .runs = {runs_.data() + first, runs_.size() - first},
                         .logits = p + 1 == prompt.size() ? out : nullptr});
      }
    }
  }
  void add_pads(std::size_t count) {
    static constexpr kv::column_run one{0, 1};
    const kv_ref kv = packed_kv(c_, pad_.data(), 1);
    for (std::size_t i = 0; i < count; ++i) {
      rows_.push_back({.token = 0, .position = 0, .kv = kv, .write = 0, .runs = {&one, 1}});
    }
  }
  void clear_rows(std::size_t columns) {
    rows_.clear();
    runs_.clear();
    // Rows point into it: it must not grow while they are made.
    runs_.reserve(2 * (std::size_t{o_.slots} * (columns + 2) + holes()));
  }
  [[nodiscard]] std::size_t holes() const {
    std::size_t n = 0;
    for (std::uint32_t i = 0; i < batch_.size(); ++i) n += 2 * (batch_[i].holes.size() + 1);
    return n;
  }

  /// Computes all live rows and `pads`, and gives each its token.
  void iterate(std::size_t pads, std::size_t columns, bool stay) {
    clear_rows(columns);
    for (std::uint32_t i = 0; i < batch_.size(); ++i) {
      if (batch_[i].live) add_rows(i);
    }
    add_pads(pads);
    const double before = now();
    const bool full = columns == 1 && batch_.live() == batch_.size();
    compute();
    if (full) result_.iteration_ms.push_back((now() - before) * 1e3);
    ++result_.iterations;
    for (std::uint32_t i = 0; i < batch_.size(); ++i) {
      if (!batch_[i].live) continue;
      const std::size_t request = request_in(i);
      if (!over(request)) note(request, logits_.data() + i * c_.vocabulary);
      batch_.produce(i, result_.tokens[request].back());
      if (!stay && over(request)) batch_.remove(i);
    }
  }

  void run_group() {
    const bool prefilled = o_.method == decode_method::pd;
    if (prefilled) sort_staged();
    const std::size_t rows = std::min<std::size_t>(o_.slots, enterable());
    std::vector<std::size_t> members;
    std::vector<kv::shaped_entry> entries;
    std::size_t prompts = 0;
    std::size_t longest = 0;
    for (std::uint32_t slot = 0; slot < rows; ++slot) {
      if (prefilled) {
        embed(slot, staged_.front());
        members.push_back(staged_.front().request);
        staged_.pop_front();
        continue;
      }
      members.push_back(waiting_.front());
      waiting_.pop_front();
      entries.push_back({slot, describe(members.back())});
      prompts += requests_[members.back()].prompt.size();
      longest = std::max(longest, requests_[members.back()].prompt.size());
    }
    if (!prefilled) {
      batch_.shape(entries, plan_);
      use_slots(entries);
      execute();
      iterate(rows * longest - prompts, longest, true);
    }
    while (std::ranges::any_of(members, [&](std::size_t r) { return !over(r); })) {
      admit();
      if (o_.own_prefill_stream && prefilled) prefill();
      batch_.step(plan_);
      execute();
      iterate(0, 1, true);
    }
    for (std::uint32_t slot = 0; slot < rows; ++slot) batch_.remove(slot);
  }

  /// Slots that are written by an iteration and not by a copy get their memory.
  void use_slots(const std::vector<kv::shaped_entry>& entries) {
    for (const kv::shaped_entry& e : entries) fresh_.push_back(e.slot);
    execute();
    for (const std::uint32_t slot : fresh_) memory_.prepare(slot);
    fresh_.clear();
  }

  void turn() {
    std::vector<kv::shaped_entry> entries;
    std::size_t prompts = 0;
    std::size_t longest = 1;
    const std::uint32_t old = batch_.live();
    for (std::uint32_t slot = 0; slot < batch_.size() && enterable() > 0; ++slot) {
      if (!batch_.is_free(slot)) continue;
      if (o_.method == decode_method::baton) {
        embed(slot, staged_.front());
        staged_.pop_front();
        continue;
      }
      const std::size_t request = waiting_.front();
      waiting_.pop_front();
      entries.push_back({slot, describe(request)});
      prompts += requests_[request].prompt.size();
      longest = std::max(longest, requests_[request].prompt.size());
    }
    if (o_.method == decode_method::orca && !entries.empty()) {
      batch_.step(plan_);
      execute();
      for (const kv::shaped_entry& e : entries) {
        kv::prepared who = e.who;
        who.length = who.prompt;
        batch_.insert(e.slot, who, plan_);
        // Nothing to copy: the iteration computes these columns.
        kv::copy_plan growth;
        growth.set_capacity(plan_.capacity());
        for (const kv::column_copy& c : plan_.copies()) {
          if (c.kind != kv::copy_kind::enter) growth.add(c);
        }
        plan_.clear();
        memory_.execute(decode_, growth);
        memory_.prepare(e.slot);
      }
      iterate(0, longest, false);
      return;
    }
    batch_.shape(entries, plan_);
    use_slots(entries);
    const std::size_t pads = entries.empty() ? 0 : batch_.size() * longest - prompts - old;
    iterate(pads, longest, false);
  }

  const llama& model_;
  const llama_config& c_;
  const std::vector<timed_request>& requests_;
  compare_options o_;
  host_executor executor_;
  host_executor::stream decode_;
  host_executor::stream prefill_;
  kv::kv_memory<host_executor> memory_;
  kv::decode_batch batch_;
  kv::copy_plan plan_;
  std::vector<float> pad_;
  std::vector<float> logits_;
  std::vector<token_row> rows_;
  std::vector<kv::column_run> runs_;
  std::vector<std::uint32_t> fresh_;
  llama::scratch scratch_;
  latch piece_;
  std::vector<token_row> piece_rows_;
  std::vector<kv::column_run> piece_runs_;
  std::vector<float> first_logits_;
  llama::scratch piece_scratch_;
  std::optional<staged> current_;
  std::size_t prefilled_ = 0;
  std::deque<std::size_t> waiting_;
  std::deque<staged> staged_;
  std::vector<double> last_;
  compare_result result_;
  wall_clock::time_point start_;
  std::size_t next_ = 0;
  std::size_t done_ = 0;
};

}  // namespace

compare_result compare(const llama& model, const std::vector<timed_request>& requests,
                       const compare_options& o) {
  expects(!requests.empty(), "compare: at least one request is needed");
  expects(o.max_prepared >= 1, "compare: max_prepared must be at least 1");
  expects(o.prefill_chunk >= 1, "compare: prefill_chunk must be at least 1");
  expects(o.prefill_ahead >= 1, "compare: prefill_ahead must be at least 1");
  return contest{model, requests, o}.run();
}

std::size_t positions_of(const std::vector<timed_request>& requests) noexcept {
  std::size_t prompt = 0;
  std::size_t output = 0;
  for (const timed_request& r : requests) {
    prompt = std::max(prompt, r.prompt.size());
    output = std::max<std::size_t>(output, r.output);
  }
  return prompt + output;
}

std::vector<timed_request> paper_requests(int set, double scale, const llama_config& c,
                                          std::uint64_t seed) {
  std::uint64_t state = seed;
  const auto draw = [&](double low, double high) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    const double u = static_cast<double>(state >> 11U) * 0x1.0p-53;
    return static_cast<std::uint32_t>(std::max(1.0, std::round(scale * (low + u * (high - low)))));
  };
  std::vector<timed_request> out(set == 1 ? 120 : 30);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const bool long_prompt = set == 1 && i % 4 == 0;
    const bool long_output = set == 1 && i % 4 == 1;
    const double most = set == 1 ? 400 : 200;
    out[i].prompt.resize(long_prompt ? draw(3600, 4400) : draw(24, most));
    out[i].output = long_output ? draw(3600, 4400) : draw(24, most);
    for (kv::token_id& t : out[i].prompt) {
      (void)draw(0, 1);
      t = static_cast<kv::token_id>((state >> 33U) % c.vocabulary);
    }
  }
  // In random order.
  for (std::size_t i = out.size(); i-- > 1;) {
    (void)draw(0, 1);
    std::swap(out[i], out[(state >> 33U) % (i + 1)]);
  }
  return out;
}

}  // namespace cohort::llama

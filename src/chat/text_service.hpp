// SPDX-License-Identifier: Apache-2.0
/// @file
/// The generator on a thread of its own: jobs go in, pieces of text come out.
#pragma once

#include <cohort/core/clock.hpp>
#include <cohort/core/time.hpp>

#include <llama/config.hpp>
#include <llama/generation.hpp>
#include <llama/sampler.hpp>
#include <llama/text_generator.hpp>
#include <llama/tokenizer.hpp>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "chat_metrics.hpp"
#include "device_watch.hpp"
#include "device_watchdog.hpp"

namespace cohort::chat {

/// A token that a client wants to see.
struct shown_token {
  llama::sampled what;
  std::uint64_t offset = 0;      ///< Bytes of text before it.
  std::uint64_t characters = 0;  ///< The same in characters.
  bool is_empty = false;         ///< It adds no text.
};

/// How far the device has come with a text.
enum class text_stage : std::uint8_t {
  waiting,     ///< Nothing of it was sent there: it may end at any time.
  sent,        ///< Its prompt was, in part at least.
  generating,  ///< It has a token.
  ended,       ///< Its last piece is out, though the generator may have it still.
};

/// One text of a job. The service owns it from `submit` until its last piece, and longer where the
/// device hangs: a job lives as long as the service needs it.
struct choice : llama::generation {
  std::uint32_t index = 0;
  llama::token_reader reader;
  llama::stop_matcher stops;
  bool shows_tokens = false;

  /// The service's own.
  std::deque<shown_token> held;        ///< Their text is not out yet.
  std::uint64_t bytes = 0;             ///< Of the tokens.
  std::uint64_t characters = 0;        ///< Of the tokens.
  std::uint64_t said = 0;              ///< Of the text that is out.
  std::size_t noted = 0;               ///< Times between tokens that were counted.
  std::optional<duration> late_for{};  ///< As in its last piece.
  bool first_noted = false;
  text_stage stage = text_stage::waiting;  ///< Guarded by the service's lock.
  std::uint64_t told = 0;                  ///< Tokens so far, likewise.
};

/// What one client asked for in one request. Derive from it to carry the client.
struct job {
  std::deque<choice> choices;
  time_point arrival{};

  job() = default;
  virtual ~job() = default;
  job(const job&) = delete;
  job& operator=(const job&) = delete;
};

/// More of a choice's text.
struct piece {
  std::shared_ptr<job> of{};
  std::uint32_t choice = 0;
  std::string text{};
  std::vector<shown_token> tokens{};
  std::uint64_t produced = 0;  ///< Tokens so far, those that ended the text included.
  std::optional<kv::finish_reason> finished{};  ///< In the last piece alone.
  /// In the last piece of one that ended since the device hangs or fails: `rejected`, if nothing of
  /// it was sent there, else `error`.
  device_trouble trouble = device_trouble::none;
  /// In the last piece of one that was `rejected`, if its first token would have been late: after
  /// which one like it would be accepted; `unbounded`: never. Else there was no place for it.
  std::optional<duration> late_for{};
};

/// Where pieces go. Called on a thread of the service's, one at a time, under a lock: it may not
/// call the service.
class piece_listener {
 public:
  piece_listener() = default;
  virtual ~piece_listener() = default;
  piece_listener(const piece_listener&) = delete;
  piece_listener& operator=(const piece_listener&) = delete;
  virtual void said(std::vector<piece> pieces) = 0;
};

struct service_options {
  llama::generator_options generator{};
  watch_options watch{};            ///< Of the device.
  std::uint32_t max_waiting = 256;  ///< Texts beyond those that have a slot; at least 1.

  /// Most choices at one time.
  [[nodiscard]] std::size_t capacity() const noexcept {
    return std::size_t{generator.slots} + max_waiting;
  }
  /// What the generator is made with: `service::submit` keeps the bound of its queue.
  [[nodiscard]] llama::generator_options queued() const noexcept {
    llama::generator_options o = generator;
    o.max_queued = static_cast<std::uint32_t>(capacity());
    return o;
  }
};

/// If the device hangs or fails, texts of which nothing was sent there end at once. Those that one
/// has that hangs end when it has hung for `watch_options::until_texts_end`: all, or, if it is a
/// job of prompts that hangs, those that have no token. What it may still write to stays the
/// generator's until it returns; then they are cancelled. Those whose iteration or prompt fails end
/// then, with `error`. Thread safety: any thread but the service's own.
class text_service final : private llama::device_listener, private trouble_listener {
 public:
  /// @param generator Made with `o.queued()` for a model of this `config`.
  /// @throws config_error If an option is outside its range, or no text would fit.
  text_service(std::unique_ptr<llama::text_generator> generator, const llama::llama_config& config,
               const llama::tokenizer& words, const service_options& o, piece_listener& listener,
               chat_metrics& counters);
  /// Ends what has not ended; its pieces are lost.
  ~text_service();
  text_service(const text_service&) = delete;
  text_service& operator=(const text_service&) = delete;

  /// Most tokens of a text, its prompt included: the model's, or less if memory does not allow it.
  [[nodiscard]] std::uint32_t context() const noexcept { return context_; }
  /// Most choices at one time.
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  /// Accepts all choices of a job or none. Each gets pieces until its last. Whose first token could
  /// not be in time is `rejected` by its last.
  /// @returns Whether there is room, and a device that neither hangs nor fails.
  bool submit(const std::shared_ptr<job>& j);
  /// Ends a job soon; its choices still get their last pieces.
  void cancel(const std::shared_ptr<job>& j);
  /// Choices that have not ended.
  [[nodiscard]] std::size_t open() const noexcept { return open_.load(); }
  /// The generator failed; nothing is generated any more.
  [[nodiscard]] bool is_broken() const noexcept { return broken_.load(); }
  /// If the device does not come back from what it was sent, or did so just now, or fails: nothing
  /// is accepted.
  [[nodiscard]] device_trouble trouble() const noexcept { return watchdog_.trouble(); }
  /// The device does not come back: whoever destroys this waits for it.
  [[nodiscard]] bool has_hung_device() { return watchdog_.is_hanging(); }

 private:
  struct command {
    std::shared_ptr<job> what;
    bool is_cancel;
  };

  void takes(llama::generation& g) noexcept override;
  void sent(llama::device_work what, time_point now,
            std::optional<duration> expected) noexcept override {
    device_threads_[static_cast<std::size_t>(what)].store(generator_->thread_of(what));
    watchdog_.sent(what, now, expected);
  }
  void returned(llama::device_work what, time_point now) noexcept override {
    watchdog_.returned(what, now);
  }
  void failed(llama::device_work what, std::string_view why, time_point now) noexcept override {
    watchdog_.failed(what, why, now);
  }
  /// Of the device's thread and the service's own, which hears of the end: they work in turn.
  [[nodiscard]] runtime::thread_load load_of(llama::device_work what) noexcept override {
    const int device = device_threads_[static_cast<std::size_t>(what)].load();
    if (device == 0) return {};
    return runtime::load_of_thread(device) + runtime::load_of_thread(thread_id_.load());
  }
  void is_out() noexcept override { end_without_device(text_stage::waiting, trouble()); }
  void stays_away(llama::device_work what) noexcept override {
    end_without_device(
        what == llama::device_work::prefill ? text_stage::sent : text_stage::generating,
        device_trouble::hangs);
  }

  void run();
  void begin(const std::shared_ptr<job>& j);
  void end_unbegun(const std::shared_ptr<job>& j);
  bool hear(choice& c, const llama::sampled& s);
  void release_tokens(choice& c, piece& p, bool all);
  void publish();
  void fail_all();
  void end_without_device(text_stage upto, device_trouble t) noexcept;
  [[nodiscard]] piece end_without_device(const std::shared_ptr<job>& owner, choice& c,
                                         device_trouble t);
  void cancel_ended();
  void report();

  const llama::tokenizer& words_;
  piece_listener& listener_;
  chat_metrics& counters_;
  std::uint32_t context_ = 0;
  std::size_t capacity_ = 0;
  std::atomic<std::size_t> open_{0};
  std::atomic<bool> broken_{false};

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<command> inbox_;
  bool stopping_ = false;
  bool has_ended_some_ = false;  // Which the generator is to be told.
  std::size_t live_ = 0;         // Texts that have a slot.
  // Changed by the service's thread alone, under the lock; so that reads without it.
  std::vector<std::pair<std::shared_ptr<job>, choice*>> active_;

  // The service's thread alone.
  steady_clock clock_;
  std::vector<std::pair<choice*, piece>> pieces_;
  std::uint64_t numbers_ = 0;
  // Of the service's thread and of those that compute, by the kernel; the watchdog reads them.
  std::atomic<int> thread_id_{0};
  std::array<std::atomic<int>, 2> device_threads_{};
  device_watchdog watchdog_;  // Before the generator, by which it is told.
  std::unique_ptr<llama::text_generator> generator_;

  std::thread thread_;
};

}  // namespace cohort::chat

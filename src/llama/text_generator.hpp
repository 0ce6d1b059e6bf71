// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a server's loop is to those who drive it, whatever its decoder runs on.
#pragma once

#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/kv/decode_scheduler.hpp>
#include <cohort/kv/prompt/slo_admission.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "decoder_backend.hpp"
#include "generation.hpp"

namespace cohort::llama {

/// Who decides what a generator does next.
using generation_scheduler =
    kv::decode_scheduler<kv::best_fit, kv::slo_admission<measured_prefill>>;

/// Who is told what a loop sends to its device, and that it came back. Called on the loop's
/// thread, which a device that hangs may keep from then on.
class device_listener {
 public:
  /// A piece of this prompt is about to be sent, for the first time or again.
  virtual void takes(generation& g) noexcept = 0;
  /// Is about to be sent: the call that does so may hang, too.
  /// @param expected How long it takes, by what was measured; nothing while nothing was.
  virtual void sent(device_work what, time_point now,
                    std::optional<duration> expected) noexcept = 0;
  virtual void returned(device_work what, time_point now) noexcept = 0;
  /// Instead: it has failed. @param why As the backend says it; may be empty.
  virtual void failed(device_work what, std::string_view why, time_point now) noexcept = 0;

 protected:
  ~device_listener() = default;
};

/// The loop of an LLM server without its network. Prefill and decode run on streams of their own;
/// an iteration never waits for a prompt. Prompts are prefilled in pieces, in turn, so that a short
/// one is not stuck behind long ones; equal prompts are prefilled once. If an iteration fails, the
/// texts that were in it end with `error`, and with a job of prompts theirs; all others go on.
/// Thread safety: none; one thread owns it. Models: `basic_generator`, `generator`,
/// `gpu_generator`.
class text_generator {
 public:
  using scheduler = generation_scheduler;

  text_generator() = default;
  virtual ~text_generator() = default;
  text_generator(const text_generator&) = delete;
  text_generator& operator=(const text_generator&) = delete;

  /// Measures how long prompts take, where first tokens are promised; takes up to some seconds.
  /// Before the first request; without it the first ones are accepted whatever they take.
  /// @throws device_error If the device fails at it.
  virtual void calibrate(const std::function<time_point()>& clock) = 0;
  /// Whom to tell of the device's work from now on, but of calibration; null: nobody.
  /// @param listener Must outlive it.
  virtual void watch(device_listener* listener) noexcept = 0;
  /// The kernel's id of the thread that does the device's work of this kind; 0 where that is no
  /// thread of this process, or has not begun.
  [[nodiscard]] virtual int thread_of(device_work /*what*/) const noexcept { return 0; }
  /// Accepts a request, or says why not.
  /// @param now When its first token's time begins to count, unless its `arrival` is before.
  /// @throws config_error If its sampling or a token is out of range.
  virtual std::optional<refusal> submit(generation& g, time_point now) = 0;
  std::optional<refusal> submit(generation& g) { return submit(g, time_point{}); }
  /// Ends a request as soon as it may.
  virtual void cancel(generation& g) = 0;

  /// One iteration at most; waits for a prefill if there is nothing else to do.
  /// @param clock Tells the time of each token.
  /// @returns Whether anything is left to do.
  /// Throws what handlers of tokens throw, and bad_alloc: then nothing it has can be trusted.
  virtual bool turn(const std::function<time_point()>& clock) = 0;

  [[nodiscard]] virtual const scheduler& state() const noexcept = 0;
  /// Prompts whose keys and values were there already, or were being computed for another.
  [[nodiscard]] virtual std::uint64_t prefix_hits() const noexcept = 0;
  /// Tokens of prompts that were computed.
  [[nodiscard]] virtual std::uint64_t prefilled_tokens() const noexcept = 0;
  /// Bytes of a column of keys and values, by which `kv_bytes` and `staging_bytes` count.
  [[nodiscard]] virtual std::uint64_t column_bytes() const noexcept = 0;
};

/// One that owns the loop that it is, so that those who use it need not know its decoder.
class loop_owner : public text_generator {
 public:
  using text_generator::submit;
  std::optional<refusal> submit(generation& g, time_point now) override {
    return loop().submit(g, now);
  }
  void calibrate(const std::function<time_point()>& clock) override { loop().calibrate(clock); }
  void watch(device_listener* listener) noexcept override { loop().watch(listener); }
  [[nodiscard]] int thread_of(device_work what) const noexcept override {
    return loop().thread_of(what);
  }
  void cancel(generation& g) override { loop().cancel(g); }
  bool turn(const std::function<time_point()>& clock) override { return loop().turn(clock); }
  [[nodiscard]] const scheduler& state() const noexcept override { return loop().state(); }
  [[nodiscard]] std::uint64_t prefix_hits() const noexcept override { return loop().prefix_hits(); }
  [[nodiscard]] std::uint64_t prefilled_tokens() const noexcept override {
    return loop().prefilled_tokens();
  }
  [[nodiscard]] std::uint64_t column_bytes() const noexcept override {
    return loop().column_bytes();
  }

 private:
  [[nodiscard]] virtual text_generator& loop() const noexcept = 0;
};

}  // namespace cohort::llama

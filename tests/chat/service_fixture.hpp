// SPDX-License-Identifier: Apache-2.0
/// @file
/// What tests of the text service share: the generator's loop over a decoder that computes nothing.
#pragma once

#include <chat/text_service.hpp>
#include <cstdint>
#include <initializer_list>
#include <llama/basic_generator.hpp>
#include <llama/tokenizer.hpp>
#include <memory>
#include <thread>

#include <llama/scripted_backend.hpp>

namespace cohort::chat::test_support {

/// It says what happens by the functions of its backend.
class scripted_loop final : public llama::loop_owner {
 public:
  explicit scripted_loop(const llama::generator_options& o) : backend_{o}, loop_{backend_, o} {}
  /// Before it has a thread.
  [[nodiscard]] llama::scripted_backend& backend() noexcept { return backend_; }

 private:
  [[nodiscard]] text_generator& loop() const noexcept override { return loop_; }

  llama::scripted_backend backend_;
  mutable llama::basic_generator<llama::scripted_backend> loop_;
};

inline const llama::generator_options small{
    .slots = 4, .columns = 16, .prefill_chunk = 4, .prefill_ahead = 2, .prefix_bytes = 0};
inline const llama::tokenizer words = llama::tokenizer::bytes();
inline llama::llama_config config() { return llama::scripted_backend{small}.config(); }

/// A text for each prompt of so many tokens.
inline std::shared_ptr<job> job_of(std::initializer_list<std::uint32_t> prompts,
                                   std::uint32_t max_new) {
  auto j = std::make_shared<job>();
  for (const std::uint32_t prompt : prompts) {
    choice& c = j->choices.emplace_back();
    c.index = static_cast<std::uint32_t>(j->choices.size() - 1);
    c.text.assign(prompt, static_cast<kv::token_id>(prompt % llama::scripted_vocabulary));
    c.max_new = max_new;
  }
  return j;
}

/// Waits, however long it takes.
template <class Predicate>
void wait_until(Predicate is_so) {
  while (!is_so()) std::this_thread::yield();
}

}  // namespace cohort::chat::test_support

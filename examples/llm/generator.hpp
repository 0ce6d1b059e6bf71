// SPDX-License-Identifier: Apache-2.0
/// @file
/// Generates text for many requests at once: the decode scheduler over a Llama on the host.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "generation.hpp"
#include "llama.hpp"
#include "text_generator.hpp"

namespace cohort::llm {

/// `basic_generator` on the host. Tokens are those of the solo run, bit for bit.
class generator : public text_generator {
 public:
  /// @param model Must outlive it.  @throws config_error If an option is outside its range.
  generator(const llama& model, const generator_options& o);
  ~generator() override;

  using text_generator::submit;
  std::optional<refusal> submit(generation& g, time_point now) override;
  void cancel(generation& g) override;
  bool turn(const std::function<time_point()>& clock) override;
  [[nodiscard]] const scheduler& state() const noexcept override;
  [[nodiscard]] std::uint64_t prefix_hits() const noexcept override;
  [[nodiscard]] std::uint64_t prefilled_tokens() const noexcept override;
  [[nodiscard]] std::uint64_t column_bytes() const noexcept override;

 private:
  struct parts;
  std::unique_ptr<parts> parts_;
};

}  // namespace cohort::llm

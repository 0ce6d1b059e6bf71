// SPDX-License-Identifier: Apache-2.0
/// @file
/// Generates text for many requests at once: the decode scheduler over a Llama on the host.
#pragma once

#include <memory>

#include "generation.hpp"
#include "llama.hpp"
#include "text_generator.hpp"

namespace cohort::llama {

/// `basic_generator` on the host. Tokens are those of the solo run, bit for bit.
class generator : public loop_owner {
 public:
  /// @param model Must outlive it.  @throws config_error If an option is outside its range.
  generator(const llama& model, const generator_options& o);
  ~generator() override;

 private:
  struct parts;
  [[nodiscard]] text_generator& loop() const noexcept override;
  std::unique_ptr<parts> parts_;
};

}  // namespace cohort::llama

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Keeps what a picker tells its gateway: `answer_log`.
#pragma once

#include <cohort/cluster/answer.hpp>

#include <cstdint>
#include <map>
#include <vector>

namespace cohort::cluster {

struct answer_log {
  std::vector<picker_answer> answers;
  std::map<std::uint64_t, std::vector<outcome>> ends;

  void answer(const picker_answer& a) noexcept { answers.push_back(a); }
  void over(request_id id, outcome how) noexcept { ends[id.value()].push_back(how); }

  /// How often a stream was answered.
  [[nodiscard]] std::size_t count(std::uint64_t id) const {
    std::size_t n = 0;
    for (const picker_answer& a : answers) n += a.stream.value() == id;
    return n;
  }
};

}  // namespace cohort::cluster

// SPDX-License-Identifier: Apache-2.0
#include "pair_runner.hpp"

#include "pair_turns.hpp"

#include <thread>
#include <utility>
#include <vector>

namespace cohort::commands {

static_assert(pair_machine<pair_runner>);

double pair_runner::run(std::size_t side) {
  const engine::measurement m = pair_.run(side, batches_.at(side));
  return to_ms(options_.busy ? m.busy : m.whole);
}

void pair_runner::check_stop() const {
  if (options_.stop != nullptr && options_.stop->load()) throw stop_asked{};
}

double pair_runner::alone(std::size_t side) {
  const std::chrono::duration<double> block{options_.block_s};
  std::vector<double> ms;
  for (const clock::time_point start = clock::now(); ms.empty() || clock::now() - start < block;) {
    check_stop();
    ms.push_back(run(side));
  }
  return middle_of(std::move(ms));
}

std::array<double, 2> pair_runner::together() {
  const std::chrono::duration<double> block{options_.block_s};
  std::array<std::vector<double>, 2> ms;
  std::array<std::exception_ptr, 2> failed;
  std::atomic<int> had_enough{0};
  std::atomic<bool> over{false};
  const auto loop = [&](std::size_t side) {
    try {
      bool enough = false;
      for (const clock::time_point start = clock::now(); !over;) {
        check_stop();
        const double took = run(side);
        if (over && enough) break;  // The other side has finished.
        ms.at(side).push_back(took);
        if (enough || clock::now() - start < block) continue;
        enough = true;
        if (++had_enough == 2) over = true;
      }
    } catch (...) {
      failed.at(side) = std::current_exception();
      over = true;
    }
  };
  {
    const std::jthread other{[&] { loop(1); }};
    loop(0);
  }
  for (const std::exception_ptr& f : failed) {
    if (f) std::rethrow_exception(f);
  }
  return {middle_of(std::move(ms[0])), middle_of(std::move(ms[1]))};
}

}  // namespace cohort::commands

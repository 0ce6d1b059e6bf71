// SPDX-License-Identifier: Apache-2.0
// A stand-in for your model and its requests, used by the loops in this folder.
#pragma once

#include <cohort/engine/engine_core.hpp>

#include <chrono>
#include <cmath>
#include <random>
#include <thread>

/// Your request: its data, besides the fields that cohort needs. It must live until it has ended.
struct job : cohort::request {
  float in = 0;
  mutable float out = 0;  // Written while its batch runs, which sees requests as const.
};

/// Approximate latency of a batch: the core learns the real one while it serves.
inline const cohort::engine::model_config my_model{
    .scheduling = {
        .latency = cohort::latency_curve{cohort::linear_latency{std::chrono::milliseconds{3},
                                                                std::chrono::microseconds{200}},
                                         32},
        .slo = std::chrono::milliseconds{100}}};

/// Runs a batch on one of your threads. Here it waits about as long as expected, as for a GPU,
/// and computes square roots.
inline void run(const cohort::deferred::batch& b) {
  thread_local std::mt19937 random{std::random_device{}()};
  std::lognormal_distribution<> noise{0, 0.1};
  std::this_thread::sleep_for(noise(random) * std::chrono::microseconds{3000 + 200 * b.size()});
  for (const cohort::request& r : b.requests) {
    const auto& j = static_cast<const job&>(r);
    j.out = std::sqrt(j.in);
  }
}

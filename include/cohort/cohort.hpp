// SPDX-License-Identifier: Apache-2.0
/// @file
/// Every header of cohort but those for CUDA, servers and clusters. Convenient, and slower to
/// compile than the few headers a program needs.
#pragma once

#include <cohort/core/assert.hpp>
#include <cohort/core/clock.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/indexed_heap.hpp>
#include <cohort/core/latency_model.hpp>
#include <cohort/core/observer.hpp>
#include <cohort/core/outcome.hpp>
#include <cohort/core/rate_tracker.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/core/timer_queue.hpp>
#include <cohort/core/version.hpp>
#include <cohort/deferred/adaptive.hpp>
#include <cohort/deferred/autoscale.hpp>
#include <cohort/deferred/candidate.hpp>
#include <cohort/deferred/device_set.hpp>
#include <cohort/deferred/gather.hpp>
#include <cohort/deferred/model_shard.hpp>
#include <cohort/deferred/priority.hpp>
#include <cohort/deferred/rank.hpp>
#include <cohort/deferred/request_queue.hpp>
#include <cohort/deferred/scheduler.hpp>
#include <cohort/deferred/target.hpp>
#include <cohort/deferred/view.hpp>
#include <cohort/deferred/window.hpp>
#include <cohort/engine/engine_core.hpp>
#include <cohort/runtime/emulated.hpp>
#include <cohort/runtime/executor.hpp>
#include <cohort/runtime/host.hpp>
#include <cohort/runtime/staged_model.hpp>
#include <cohort/sim/arrivals.hpp>
#include <cohort/sim/goodput.hpp>
#include <cohort/sim/recorder.hpp>
#include <cohort/sim/result.hpp>
#include <cohort/sim/simulation.hpp>
#include <cohort/sim/workload.hpp>

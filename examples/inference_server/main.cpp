// SPDX-License-Identifier: Apache-2.0
// An inference server: serves models over HTTP with deferred batch scheduling.
#include <cohort/core/error.hpp>
#include <cohort/core/time.hpp>
#include <cohort/runtime/blas.hpp>
#include <cohort/serve/http.hpp>
#include <cohort/serve/metrics.hpp>
#include <cohort/serve/server_life.hpp>

#include <fmt/format.h>
#include <inference/infer_app.hpp>
#include <inference/model_service.hpp>
#include <inference/settings_keeper.hpp>

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <serve/log.hpp>
#include <serve/shared_regions.hpp>
#include <string>

#include "parse_options.hpp"

namespace cohort::inference {
namespace {

int run(const options& o) {
  serve::metrics counters;  // Must outlive answers in progress, which hold models.
  serve::http_server http{{.name = "inference_server",
                           .host = o.host,
                           .port = o.port,
                           .body_limit = o.body_limit,
                           .timeouts = o.timeouts,
                           .max_held_bytes = o.request_memory_mib << 20U,
                           .held_bytes_option = "--request-memory-mib",
                           .max_connections = o.max_connections,
                           .probe_connections = o.management_port ? std::size_t{0} : 8}};
  infer_app answers{o, http, counters};
  // Declared before its user, `life`, so that it is destroyed later, also after an exception.
  std::unique_ptr<model_service> models;
  // Before the models are loaded: a port in use is reported at once, and probes are answered.
  serve::server_life life{
      http,
      answers,
      answers,
      {.name = "inference_server",
       .host = o.host,
       .management_port = o.management_port,
       .lame_duck_s = o.lame_duck_s,
       .drain_timeout_s = o.drain_timeout_s,
       .more_files = o.has_shared_memory ? serve::shared_regions::most : std::size_t{0},
       .keys = answers.keys()}};
  life.begin();
  models = make_service(o, answers, counters);
  if (const std::size_t n = models->models_failed(); o.exit_on_error && n > 0) {
    serve::print_lines(serve::log_stream::err,
                       fmt::format("inference_server: models that could not be loaded: {}, and "
                                   "--exit-on-error is true\n",
                                   n));
    serve::flush_log();
    std::_Exit(1);  // Does not wait for loads that hang.
  }
  std::string names;
  for (const served_model& m : models->models()) {
    names += fmt::format("{}{} ({} {} ms)", names.empty() ? "" : ", ", m.meta.name,
                         m.meta.has_deadline ? "SLO" : "aims at", to_ms(m.meta.slo));
  }
  if (models->models().size() > 6) names = fmt::format("{} models", models->models().size());
  life.become_ready([&] { answers.start(*models); });
  serve::print_lines(serve::log_stream::out,
                     fmt::format("inference_server: ready on {}{} | {} | {} | policy {}\n{}",
                                 http.url(), life.management_url(), names, models->description(),
                                 o.policy.name, models->notes()));
  serve::log_line(serve::severity::info, serve::log_stream::err, "inference_server",
                  answers.access());
  std::optional<settings_keeper> keeper;
  if (const kept_settings* s = models->settings()) {
    keeper.emplace(
        [&] {
          http.post([&] {
            if (const auto found = answers.settings()) keeper->found(*found);
          });
        },
        [s](const deferred::settings& found) { s->cache->keep_settings({s->key, found}); },
        std::chrono::seconds{5}, s->first);
  }
  life.wait();
  if (const auto& last = answers.last_settings()) {
    if (keeper) keeper->found(*last);
    serve::print_lines(serve::log_stream::out,
                       fmt::format("inference_server: settings --window {} --quantile {}\n",
                                   deferred::name_of(last->window), last->quantile));
  }
  keeper.reset();  // Saves the settings even if a device hangs.
  return life.end([&] {
    answers.end();
    models->drain();
    models.reset();
  });
}

}  // namespace
}  // namespace cohort::inference

int main(int argc, char** argv) {
  using namespace cohort;
  serve::start_log("inference_server");
  const inference::options options = inference::parse_options(argc, argv);
  if (options.executor == "host" || options.executor == "auto") runtime::prepare_blas(argv);
  const serve::log_flush at_the_end;
  const auto fail = [](int status, const std::exception& e) {
    serve::print_lines(serve::log_stream::err, fmt::format("inference_server: {}\n", e.what()));
    return status;
  };
  try {
    return inference::run(options);
  } catch (const device_error& e) {
    return fail(1, e);
  } catch (const error& e) {
    return fail(2, e);
  } catch (const std::exception& e) {
    return fail(1, e);
  }
}

// SPDX-License-Identifier: Apache-2.0
// An inference server: models over HTTP, batched by deferred scheduling.
#include <cohort/core/error.hpp>
#include <cohort/runtime/host.hpp>
#include <cohort/serve/metrics.hpp>

#include <cstdio>
#include <exception>

#include "http_server.hpp"
#include "options.hpp"
#include "service.hpp"

int main(int argc, char** argv) {
  using namespace cohort;
  const server::options options = server::parse_options(argc, argv);
  if (options.executor == "host" || options.executor == "auto") runtime::prepare_blas(argv);
  try {
    server::http_server http{options};
    http.listen();  // Before the models are loaded: a port that is taken is known at once.
    serve::metrics counters;
    const auto service = server::make_service(options, http, counters);
    return http.run(*service, counters);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "inference_server: %s\n", e.what());
    return dynamic_cast<const config_error*>(&e) != nullptr ? 2 : 1;
  }
}

if(TARGET llm_server)
  cohort_add_tests(chat NAMES chat chat_app device_watch loop_chaos memory protocol text_service LIBS cohort_chat
                   nlohmann_json::nlohmann_json)
  cohort_add_test(chat/service_chaos_test.cpp LIBS cohort_chat)
  # They start the server, and are its clients over raw sockets.
  set(needs LIBS nlohmann_json::nlohmann_json DEFINITIONS "LLM_SERVER=\"$<TARGET_FILE:llm_server>\"" "SOURCE_DIR=\"${PROJECT_SOURCE_DIR}\"" DEPENDS llm_server SERIAL)
  cohort_add_tests(chat NAMES disconnect llm_server ${needs})
  cohort_add_test(chat/hung_device_test.cpp ${needs})
  cohort_blocks_calls(chat.hung_device_test)
  # The real client, where it is.
  set(COHORT_OPENAI_CLIENT
      "${PROJECT_SOURCE_DIR}/build/npm"
      CACHE PATH "Folder that `npm install --prefix` has put openai into, for its test")
  mark_as_advanced(COHORT_OPENAI_CLIENT)
  if(NOT COHORT_PLAIN_TESTS AND NOT COHORT_TEST_LAYERS)
    add_test(NAME chat.openai_client_test
             COMMAND "${CMAKE_CURRENT_LIST_DIR}/openai_client_test" $<TARGET_FILE:llm_server>
                     "${COHORT_OPENAI_CLIENT}")
    set_tests_properties(chat.openai_client_test PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 120
                                                           RESOURCE_LOCK wall_time)
  endif()
endif()

# What all reports have, their style and their script, as constant arrays of a target.
set(ATHANOR_REPORT_FOLDER ${CMAKE_CURRENT_LIST_DIR}/../trainer/report)
set(ATHANOR_EMBED ${CMAKE_CURRENT_LIST_DIR}/embed.cmake)

function(athanor_report_parts target)
  foreach(part style.css/Style script.js/Script)
    string(REPLACE "/" ";" part ${part})
    list(GET part 0 file)
    list(GET part 1 symbol)
    set(from ${ATHANOR_REPORT_FOLDER}/${file})
    add_custom_command(OUTPUT report_${file}.cpp
      COMMAND ${CMAKE_COMMAND} -DINPUT=${from} -DOUTPUT=report_${file}.cpp -DSYMBOL=kReport${symbol} -P ${ATHANOR_EMBED}
      DEPENDS ${from} ${ATHANOR_EMBED})
    target_sources(${target} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/report_${file}.cpp)
  endforeach()
endfunction()

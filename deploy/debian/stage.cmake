# CPack runs this when the files of all components are in CPACK_TEMPORARY_DIRECTORY/COMPONENT/usr.
foreach(component ${CPACK_COMPONENTS_ALL})
  string(TOUPPER ${component} upper)
  execute_process(COMMAND ${CMAKE_CURRENT_LIST_DIR}/stage.sh ${component} ${CPACK_DEBIAN_${upper}_PACKAGE_NAME}
    ${CPACK_TEMPORARY_DIRECTORY}/${component} COMMAND_ERROR_IS_FATAL ANY)
endforeach()

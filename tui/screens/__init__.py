"""The screens of the cockpit: they own selection and layout, and leave drawing to the widgets."""
